//go:build !faultpoint || !unix

package faultpoint

// Enabled reports whether the program has points.
const Enabled = false

// Hit does nothing in this program.
func Hit(Point) {}

// Err returns nil in this program.
func Err(Point) error { return nil }

// Is does nothing in this program.
func Is(_, _ string) {}
