"""The file system: home folder, atomic renames, watcher, archives, keys."""
