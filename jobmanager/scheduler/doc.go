// Package scheduler places waiting jobs on the free slots of TaskManagers. It is pure.
//
// One slot takes subtask i of every vertex, so a job needs as many slots as its widest vertex has subtasks. A job gets all of them
// or none: two jobs that each hold half of what they need would wait for ever. Jobs are served in the order given. One that does
// not fit lets the later ones pass, or a job too big for the cluster would keep all others from restarting; but what a job that has
// run before waits for is held against jobs that have not.
package scheduler
