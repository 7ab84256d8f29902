"""Hardware: devices and links with sources, topologies, and the times of broadcast plans."""
