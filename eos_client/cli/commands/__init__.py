"""What each command takes: a module for each command, named after it. The modules of ``cli`` do the work."""
