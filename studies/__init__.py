"""Studies of the methods: they use the package and are not part of it."""
