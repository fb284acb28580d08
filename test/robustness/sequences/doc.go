// Package sequences is what the robustness suite feeds to jobs of several shapes, and the account of what comes out. The records of one
// key are numbered in each input, so a reader knows with every result whether one before it is missing, has come twice or late, and
// whether the state from which it was computed was right.
//
// [Account] and [Generator] are pure; [Produce] and [Read] do the I/O, [Describe] is the job.
package sequences
