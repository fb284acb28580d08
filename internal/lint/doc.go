// Package lint holds checks on the code base itself that no general linter knows: which package may import which, how long a file
// may be, that every package says what it is for. They run as tests.
package lint
