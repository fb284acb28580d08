// Package child ties processes that a program starts to its own life, and runs servers that tests end and start again.
package child
