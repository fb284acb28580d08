// Package command holds the sub-commands of weir, one file each.
//
// Results go to standard output, messages to standard error. A command that did not do what it was asked to exits with 1, one that was
// asked wrongly with 2.
package command
