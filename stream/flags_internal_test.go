package stream

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAJobMayDefineFlagsAndRunTwice(t *testing.T) {
	args, line := os.Args, flag.CommandLine
	t.Cleanup(func() { os.Args, flag.CommandLine = args, line })
	os.Args = []string{"job", "-brokers", "b:1", "-early", "3"}
	flag.CommandLine = flag.NewFlagSet("job", flag.ContinueOnError)
	early := flag.Int("early", 0, "defined before the job runs")
	var seen []string
	job := withFlags(func(*Env) error {
		brokers := flag.String("brokers", "", "defined by the job")
		flag.Parse()
		seen = append(seen, *brokers)
		return nil
	})
	for range 2 {
		require.NoError(t, job(nil))
	}
	require.Equal(t, []string{"b:1", "b:1"}, seen)
	require.Equal(t, 3, *early)
	require.Nil(t, flag.Lookup("brokers"))
}
