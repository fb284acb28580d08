// Package process holds the keyed operator whose state and timers the user programs.
//
// A [Setup] declares states and returns the functions that use them. It runs once in the plan, where the declarations are only
// looked at, and once for each instance. State and timers belong to the key of the record or timer that is being handled. A task
// calls an instance on one goroutine, so user functions need no lock for what their Setup made, and must not share it with others.
package process
