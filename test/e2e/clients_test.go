package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// user does one thing after the other through the command line, and remembers what was acknowledged.
type user struct {
	t    *testing.T
	c    *harness.Cluster
	name string

	commands, unknown int
	submitted         map[string]string // request id → job id
	canceled          map[string]bool
	savepoints        map[string]string // request id → path
	jobs              map[string]string // request id of a savepoint → job id
}

// do runs a change until its outcome is known, always with the same request id, as the command line says.
func (u *user) do(id string, args ...string) harness.Result {
	if at := indexOf(args, "--"); at >= 0 {
		args = append(append(append([]string{}, args[:at]...), "--request-id", id), args[at:]...)
	} else {
		args = append(args, "--request-id", id)
	}
	deadline := time.Now().Add(90 * time.Second)
	for {
		u.commands++
		r := u.c.Weir(args...)
		switch {
		case r.Code == 3:
			u.unknown++
			if !strings.Contains(r.Stderr, "--request-id "+id) {
				u.t.Errorf("the way to find out is not named: %s", r.Stderr)
			}
		case r.Code == 1 && strings.Contains(r.Stderr, "no leading JobManager"):
		default:
			return r
		}
		if time.Now().After(deadline) {
			u.t.Errorf("weir %v has had no definite answer for long: %d %s", args, r.Code, r.Stderr)
			return r
		}
	}
}

func indexOf(all []string, what string) int {
	for i, s := range all {
		if s == what {
			return i
		}
	}
	return -1
}

func (u *user) live(until time.Time, in, out string) {
	for n := 0; time.Now().Before(until); n++ {
		request := fmt.Sprintf("%s-%d", u.name, n)
		r := u.do(request+"-submit", "submit", "--name", request, u.c.Binaries.Job, "--", "--brokers", u.c.Broker.Addr(),
			"--shape", "pass", "--in", in, "--out", out, "--prefix", request, "--interval", "300ms")
		if r.Code != 0 && r.Code != 4 {
			u.t.Errorf("submit %s: %d %s", request, r.Code, r.Stderr)
			continue
		}
		job := strings.TrimSpace(r.Stdout)
		u.submitted[request+"-submit"] = job
		// A savepoint of a job that is just being taken over or restarted may be refused; an acknowledged one is there.
		if r := u.do(request+"-savepoint", "savepoint", job); r.Code == 0 {
			u.savepoints[request+"-savepoint"], u.jobs[request+"-savepoint"] = strings.TrimSpace(r.Stdout), job
		}
		// The job goes by its name, which later jobs do not have.
		switch r := u.do(request+"-cancel", "cancel", request); r.Code {
		case 0, 4:
			u.canceled[job] = true
		default:
			u.t.Errorf("cancel %s: %d %s", request, r.Code, r.Stderr)
		}
	}
}

// TestChangesWhileLeadersDie fires commands while leaders are killed or frozen, and then looks at what became of those that were
// acknowledged.
func TestChangesWhileLeadersDie(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 4})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	c.Produce(harness.Numbered(in, 1, 1, 10)...)
	until := time.Now().Add(18 * time.Second)
	var users []*user
	var living sync.WaitGroup
	for _, name := range []string{"ann", "bob"} {
		u := &user{
			t: t, c: c, name: name, submitted: map[string]string{}, canceled: map[string]bool{}, savepoints: map[string]string{}, jobs: map[string]string{},
		}
		users = append(users, u)
		living.Go(func() { u.live(until, in, out) })
	}
	kills := 0
	for ; time.Now().Before(until); kills++ {
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		leader, err := c.WaitLeader(ctx)
		cancel()
		require.NoError(t, err)
		if kills%3 == 2 { // it comes back and still believes that it leads
			require.NoError(t, leader.Signal(syscall.SIGSTOP))
			time.Sleep(3 * time.Second)
			require.NoError(t, leader.Signal(syscall.SIGCONT))
			continue
		}
		require.NoError(t, leader.Kill())
		require.NoError(t, leader.Start())
	}
	living.Wait()
	var list struct {
		Jobs []struct {
			ID    string `json:"id"`
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("list", "--all", "-o", "json")), &list))
	states, names := map[string]string{}, map[string]int{}
	for _, j := range list.Jobs {
		states[j.ID] = j.State
		names[j.Name]++
	}
	for name, n := range names {
		require.Equal(t, 1, n, "job %s was submitted more than once", name)
	}
	for _, u := range users {
		t.Logf("%s: %d commands, %d of unknown outcome at first; %d jobs, %d cancels, %d savepoints; %d leaders disturbed",
			u.name, u.commands, u.unknown, len(u.submitted), len(u.canceled), len(u.savepoints), kills)
		require.NotEmpty(t, u.savepoints)
		for request, job := range u.submitted {
			require.NotEmpty(t, states[job], "%s was acknowledged", request)
		}
		for job := range u.canceled {
			require.Equal(t, "JOB_STATE_CANCELED", states[job], "job %s", job)
		}
		for request, path := range u.savepoints {
			_, err := os.Stat(filepath.Join(strings.TrimPrefix(path, "file://"), "metadata"))
			require.NoError(t, err)
			// The request once more gives the outcome of the first time, though the job has ended.
			require.Equal(t, path, strings.TrimSpace(u.do(request, "savepoint", u.jobs[request]).Stdout))
		}
		for request, job := range u.submitted {
			name := strings.TrimSuffix(request, "-submit")
			r := u.do(request, "submit", "--detach", "--name", name, c.Binaries.Job, "--", "--brokers", c.Broker.Addr(),
				"--shape", "pass", "--in", in, "--out", out, "--prefix", name, "--interval", "300ms")
			require.Equal(t, job, strings.TrimSpace(r.Stdout), r.Stderr)
		}
	}
}
