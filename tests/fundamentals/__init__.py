"""The tutorial: one idea a test, through public names only; read the modules in the order of their numbers."""
