"""Pictures of costs, with matplotlib (the extra ``plot``), which is imported when a picture is made."""
