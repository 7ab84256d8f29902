"""Pages, pictures and reports of what the engine derived."""
