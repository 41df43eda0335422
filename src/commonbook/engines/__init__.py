"""The real parts behind the ports: databases, disks, keys. Only `compose` knows them."""
