package stream

import (
	"flag"
	"os"
)

// withFlags lets a job function define flags of package flag and parse them, although it runs several times in a process: each run has
// the flags that were defined before the first one, and its own.
func withFlags(job func(*Env) error) func(*Env) error {
	return func(env *Env) error {
		before := flag.CommandLine
		defer func() { flag.CommandLine = before }()
		own := flag.NewFlagSet(os.Args[0], before.ErrorHandling())
		own.SetOutput(before.Output())
		own.Usage = func() { flag.Usage() }
		before.VisitAll(func(f *flag.Flag) { own.Var(f.Value, f.Name, f.Usage) })
		flag.CommandLine = own
		return job(env)
	}
}
