// Package faultpoint stops a process at a named point of a protocol, so that a test can show what follows when a node dies exactly
// there. Points exist only in programs built with the tag faultpoint; in all others a call compiles to nothing.
//
// A point is reached by [Hit], or by [Err] where the code can also answer with an error. What happens there is told in two ways:
//
//   - The environment variable WEIR_FAULTPOINT arms points for the life of the process: "point=action;point=action".
//   - The environment variable WEIR_FAULTPOINT_DIR names a directory in which a file named like a point arms it at any time; its text
//     is the action. When the action is taken the file is renamed to <point>.fired and holds the process's id: the test sees who is there,
//     and neither this process nor one that shares the directory or is started in its place acts again. A delay is taken at every pass and renames nothing.
//
// An action is one of
//
//	kill       kills the process (SIGKILL)
//	stop       freezes the process (SIGSTOP)
//	hang       blocks the calling goroutine for ever, while all others go on: what they have to send still leaves
//	error      makes Err return ErrInjected; Hit does nothing
//	delay:DUR  blocks the calling goroutine for a time
//
// followed by "@n" for the n-th time (from when it was armed; the first without), and by ",fact=value" for each fact, told with [Is],
// that must hold: "kill@2,attempt=1". Times count only while the facts hold. A worker tells its "job", by name, and its "attempt".
//
// State of the package is the process's, on purpose: a point is reached deep inside code that must not know of tests. All functions
// are safe for concurrent use.
package faultpoint
