package driver

import (
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
)

func TestReasonOfAnExitLeadsWithTheCrash(t *testing.T) {
	for name, c := range map[string]struct{ tail, want string }{
		"silent":           {"", "ended with exit code 2"},
		"last line":        {"one\nerror: no such topic\n", "ended with exit code 2: error: no such topic"},
		"panic":            {"level=INFO\npanic: no such column\n\ngoroutine 7 [running]:\nmain.f()\n\t/src/f.go:3 +0x1\nexit status 2\n", "ended with exit code 2: panic: no such column"},
		"fatal error":      {"fatal error: all goroutines are asleep - deadlock!\n[...]\nrip    0x46e1a1\n", "ended with exit code 2: fatal error: all goroutines are asleep - deadlock!"},
		"words about one":  {"log: panic: is not at the beginning\nerror: x\n", "ended with exit code 2: error: x"},
		"the last of them": {"panic: first, recovered\npanic: second\nmain.f()\n", "ended with exit code 2: panic: second"},
	} {
		t.Run(name, func(t *testing.T) {
			got := exitMessage(&worker{host: "h1", tm: "tm1"}, &clusterv1.WorkerExited{ExitCode: 2, OutputTail: c.tail})
			require.Equal(t, "worker process on h1 (tm1) "+c.want, got)
		})
	}
}
