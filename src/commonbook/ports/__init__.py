"""Protocols between the core and the engines that fulfil them, one seam a module."""
