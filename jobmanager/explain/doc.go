// Package explain says in sentences why a job does not get on, or that it does.
//
// It is pure: [Facts] in, an [Explanation] out. The facts are gathered by the job's driver, which knows what it is waiting for, and from
// what the tasks report, which know what they are at. One text serves all: the summary of an explanation is what `weir show` and
// `weir list` show, and what the driver logs and puts into errors.
package explain
