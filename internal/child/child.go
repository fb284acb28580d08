// Package child ties processes that a program starts to its own life.
package child
