//! Nodes, CPUs, caches and distances of a machine.
