package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/loopback"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/internal/wiretap"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

// A job whose records go from TaskManager to TaskManager, in a cluster with TLS everywhere, outlives kills and the replacement of every
// certificate and of the authority itself.
func TestClusterUnderTLS(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 1, TLS: true})
	run := c.StartOrders(75_000, 2500)
	id := c.Submit([]string{"-p", "2"}, run.Args()...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)
	hosts := map[string]bool{}
	for _, task := range c.Job(id).Tasks {
		hosts[task.Host] = true
	}
	require.Len(t, hosts, 2, "the job runs on both TaskManagers")

	rotate(t, c, id, run)
	for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
		metrics, _ := get(t, "http://"+p.Admin+"/metrics")
		require.Contains(t, metrics, "weir_"+string(p.Role)+"_tls_certificate_expires_timestamp_seconds")
	}
	for _, f := range []fault{{"leading JobManager", killLeader}, {"TaskManager", killTaskManager}} {
		f.do(t, c)
		c.WaitState(id, "RUNNING", 30*time.Second)
		run.AwaitOutput(time.Now(), 40*time.Second)
	}
	run.RequireExactlyOnce(time.Minute)
}

// rotate replaces the authority of the nodes in three steps: trust both, use certificates of the new one, trust the new one only.
func rotate(t *testing.T, c *harness.Cluster, id string, run *harness.OrderRun) {
	before := c.Job(id)
	fresh, err := testca.New("nodes of this cluster, the second")
	require.NoError(t, err)
	old := c.Security.Nodes
	everybodyTalks := func() {
		t.Helper()
		at := time.Now()
		harness.Eventually(t, 20*time.Second, "all members to be reachable", func() error {
			r := c.Weir("members")
			if n := strings.Count(r.Stdout, " yes"); r.Code != 0 || n != 3 {
				return fmt.Errorf("%d are\n%s%s", n, r.Stdout, r.Stderr)
			}
			return nil
		})
		run.AwaitOutput(at, 30*time.Second)
	}
	everybodyTalks()
	require.NoError(t, testca.WriteFile(c.Security.CA(), append(old.PEM(), fresh.PEM()...)))
	everybodyTalks()
	for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
		_, _, err := c.Security.Issue(fresh, p.ID)
		require.NoError(t, err)
	}
	everybodyTalks()
	require.NoError(t, testca.WriteFile(c.Security.CA(), fresh.PEM()))
	everybodyTalks()

	after := c.Job(id)
	require.Equal(t, before.Attempt, after.Attempt, "the job was restarted")
	require.Equal(t, before.Restarts, after.Restarts)
}

func TestTaskManagerOfAnotherAuthorityIsRefused(t *testing.T) {
	t.Parallel()
	other, err := testca.New("another company")
	require.NoError(t, err)
	foreign := false
	dir := t.TempDir()
	c := harness.Start(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 1, TLS: true, Dir: dir,
		ConfigureTaskManager: func(cfg *taskmanager.Config) {
			if !foreign {
				return
			}
			pair, err := other.Node("tm2", time.Now().Add(time.Hour))
			require.NoError(t, err)
			cfg.TLSCert, cfg.TLSKey, err = pair.Write(t.TempDir(), "foreign")
			require.NoError(t, err)
		},
	})
	foreign = true
	tm, err := c.AddTaskManager()
	require.NoError(t, err)
	harness.Eventually(t, 20*time.Second, "both sides to log the refusal", func() error {
		for p, want := range map[*localcluster.Process]string{
			c.JobManagers()[0]: `CN=tm2 was issued by CN=another company, which is not one of the authorities known here`,
			tm:                 `the other side does not accept this side's certificate`,
		} {
			if log := p.LogTail(1000); !strings.Contains(log, want) {
				return fmt.Errorf("%s: no %q in its log:\n%s", p.ID, want, log)
			}
		}
		return nil
	})
	require.Equal(t, 1, strings.Count(c.MustWeir("members"), "tm-"), "only the first TaskManager is a member")

	// A user's certificate opens no session either, and the TaskManager ends with the reason.
	pair, err := c.Security.Users.User("mallory")
	require.NoError(t, err)
	require.NoError(t, tm.Kill())
	cert, key, err := pair.Write(t.TempDir(), "mallory")
	require.NoError(t, err)
	config := filepath.Join(dir, "tm2.yaml")
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	text = append(withoutKeys(text, "tls_cert:", "tls_key:"), fmt.Sprintf("tls_cert: %s\ntls_key: %s\n", cert, key)...)
	require.NoError(t, os.WriteFile(config, text, 0o600))
	require.NoError(t, tm.Start())
	require.Error(t, tm.Wait())
	require.Contains(t, tm.LogTail(5), "CN=mallory is a user's certificate; a TaskManager needs one signed by an authority of tls_ca")
	require.Contains(t, c.JobManagers()[0].LogTail(1000), "CN=mallory")
}

func withoutKeys(text []byte, keys ...string) (out []byte) {
	for line := range bytes.Lines(text) {
		keep := true
		for _, k := range keys {
			keep = keep && !bytes.HasPrefix(line, []byte(k))
		}
		if keep {
			out = append(out, line...)
		}
	}
	return out
}

func TestUsersProveWhoTheyAre(t *testing.T) {
	t.Parallel()
	const token, wrong = "f00dfeed-a-token-of-alice-0123456789", "f00dfeed-somebody-guesses-0123456789"
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte(token+" alice\n"), 0o600))
	secure := harness.Start(t, localcluster.Config{
		JobManagers: 1, TLS: true, Dir: filepath.Join(dir, "secure"),
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.UserTokens = tokens },
	})
	other, err := testca.New("another company")
	require.NoError(t, err)
	pair, err := other.User("eve")
	require.NoError(t, err)
	eveCert, eveKey, err := pair.Write(dir, "eve")
	require.NoError(t, err)
	otherCA := filepath.Join(dir, "other-ca.crt")
	require.NoError(t, testca.WriteFile(otherCA, other.PEM()))

	ca := "WEIR_TLS_CA=" + secure.Security.CA()
	none := []string{"WEIR_TLS_CERT=", "WEIR_TLS_KEY=", ca}
	with := func(more ...string) []string { return append(append([]string(nil), none...), more...) }
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		says []string
	}{
		{"certificate", nil, nil, 0, nil},
		{"nothing", none, nil, 1, []string{"this JobManager demands a token or a client certificate", "--token-file", "--tls-cert"}},
		{"token in the environment", with("WEIR_API_TOKEN=" + token), nil, 0, nil},
		{"token in a file", none, []string{"--token-file", tokens}, 0, nil},
		{"wrong token", with("WEIR_API_TOKEN=" + wrong), nil, 1, []string{"the token given is not one that this JobManager knows"}},
		{"certificate of another authority", with("WEIR_TLS_CERT="+eveCert, "WEIR_TLS_KEY="+eveKey), nil, 1, []string{"the other side does not accept this side's certificate", "--tls-cert"}},
		{"another authority trusted", with("WEIR_TLS_CA=" + otherCA), nil, 1, []string{"the other side's certificate is not accepted", "CN=nodes of this cluster", "--tls-ca"}},
		{"no TLS", []string{"WEIR_TLS_CA=", "WEIR_TLS_CERT=", "WEIR_TLS_KEY="}, nil, 1, []string{"the other side demands TLS", "--tls-ca"}},
		{"half a pair", with("WEIR_TLS_CERT=" + eveCert), nil, 2, []string{"belong together"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			r := secure.WeirWith(tc.env, append([]string{"list"}, tc.args...)...)
			require.Equal(t, tc.code, r.Code, "%s%s", r.Stdout, r.Stderr)
			for _, text := range tc.says {
				require.Contains(t, r.Stderr, text)
			}
			require.NotContains(t, r.Stdout+r.Stderr, token)
			require.NotContains(t, r.Stdout+r.Stderr, wrong)
			require.Less(t, time.Since(began), 12*time.Second, "what waiting does not mend is said at once")
		})
	}
	t.Run("a token taken away", func(t *testing.T) {
		require.NoError(t, os.WriteFile(tokens, []byte("# nobody\n"), 0o600))
		require.Equal(t, 1, secure.WeirWith(with("WEIR_API_TOKEN="+token), "list").Code)
		require.NoError(t, os.WriteFile(tokens, []byte(token+" alice\n"), 0o600))
		require.Equal(t, 0, secure.WeirWith(with("WEIR_API_TOKEN="+token), "list").Code)
	})

	plain := harness.Start(t, localcluster.Config{
		JobManagers: 1, Dir: filepath.Join(dir, "plain"), Token: token,
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.UserTokens = tokens },
	})
	t.Run("TLS against a cluster without", func(t *testing.T) {
		r := plain.WeirWith([]string{ca}, "list")
		require.Equal(t, 1, r.Code)
		require.Contains(t, r.Stderr, "the other side does not use TLS")
		require.Contains(t, r.Stderr, "Leave out --tls-ca")
	})
	t.Run("token without TLS", func(t *testing.T) {
		require.Equal(t, 0, plain.Weir("list").Code)
		r := plain.WeirWith([]string{"WEIR_API_TOKEN="}, "list")
		require.Equal(t, 1, r.Code)
		require.Contains(t, r.Stderr, "demands a token")
		r = plain.Weir("list", "--jobmanager", "192.0.2.1:6123")
		require.Equal(t, 1, r.Code)
		require.Contains(t, r.Stderr, "a token is not sent to another machine without TLS")
		require.Contains(t, r.Stderr, "--insecure")
	})
	for cluster, says := range map[*harness.Cluster]string{secure: "the other side does not use TLS", plain: "the other side uses TLS"} {
		require.Contains(t, cluster.JobManagers()[0].LogTail(1000), says)
	}
	config := secure.MustWeir("config", "jobmanager", "--config", filepath.Join(secure.Dir, "jm1.yaml"))
	require.Contains(t, config, tokens)

	// Neither token is anywhere but in the file of tokens: not in logs, the Raft log, snapshots or configuration.
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == tokens {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("f00dfeed")) {
			return errors.Join(err, fmt.Errorf("%s holds a token", path))
		}
		return err
	}))
	require.NotContains(t, config, "f00dfeed")
}

// Workers listen within worker_ports and are reached by advertise_host. There, wiretaps record what they send each other: without TLS
// the users' names in the records can be read, with TLS nothing.
func TestRecordsBetweenWorkersCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			taps, configure := tapWorkers(t)
			c := harness.Start(t, localcluster.Config{
				JobManagers: 1, TaskManagers: 2, Slots: 1, TLS: secure, ConfigureTaskManager: configure,
			})
			run := c.StartOrders(15_000, 5000)
			id := c.Submit([]string{"-p", "2"}, run.Args()...)
			c.WaitState(id, "RUNNING", 30*time.Second)
			run.RequireExactlyOnce(time.Minute)
			var recorded []byte
			for _, tap := range taps {
				recorded = append(recorded, tap.Seen()...)
			}
			require.Greater(t, len(recorded), 100_000, "half of the records crossed the wire")
			require.Equal(t, !secure, bytes.Contains(recorded, []byte("user-")), "names in what was recorded")
		})
	}
}

// A range of ports that is too small fails the job and names the key.
func TestWorkerPortsThatAreUsedUp(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	port := uint16(busy.Addr().(*net.TCPAddr).Port)
	c := harness.Start(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 1,
		ConfigureTaskManager: func(cfg *taskmanager.Config) { cfg.WorkerPorts = taskmanager.PortRange{First: port, Last: port} },
	})
	run := c.StartOrders(100, 1000)
	r := c.Weir(append([]string{"submit", c.Binaries.Job, "--", "--brokers", c.Broker.Addr()}, run.Args()...)...)
	require.Equal(t, 1, r.Code, r.Stdout)
	require.Contains(t, r.Stderr, "worker_ports")
	require.Contains(t, r.Stderr, "every port is in use")
}

// tapWorkers returns wiretaps and how the TaskManagers are configured so that their workers are reached through them.
func tapWorkers(t *testing.T) (taps []*wiretap.Tap, configure func(*taskmanager.Config)) {
	const host = "127.0.0.2"
	var ranges []taskmanager.PortRange
	for range 2 {
		ports, err := loopback.FreePorts(1)
		require.NoError(t, err)
		r := taskmanager.PortRange{First: uint16(ports[0]), Last: uint16(ports[0])}
		ranges = append(ranges, r)
		taps = append(taps, wiretap.Listen(t, net.JoinHostPort(host, strconv.Itoa(ports[0])), loopback.Address(ports[0])))
	}
	next := 0
	return taps, func(cfg *taskmanager.Config) {
		cfg.AdvertiseHost, cfg.WorkerPorts = host, ranges[next]
		next++
	}
}
