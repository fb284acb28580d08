// Package inspect reads savepoints and checkpoints without a cluster and without the job that wrote them: which operators and states
// there are, how large they are, and what is in them as far as its encoding describes itself. It changes nothing.
package inspect
