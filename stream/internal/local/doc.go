// Package local runs a whole job in one process, with checkpoints and recovery, for development and for `weir demo`.
package local
