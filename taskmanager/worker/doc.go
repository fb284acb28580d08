// Package worker runs the operators of one attempt of a job inside one process.
package worker
