"""The local file system: the home folder, atomic renames, the file watcher, archives, YAML and key files."""
