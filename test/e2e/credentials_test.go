package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/testca"
	"github.com/weir-stream/weir/test/harness"
)

// secured is a broker that decides by ACLs, a cluster, and the arguments of a job for one user.
type secured struct {
	*harness.Cluster
	t       *testing.T
	in, out string
	// secrets must appear nowhere.
	secrets []string
	caFile  string
	wrong   string // file with a wrong password
}

const (
	clerk    = "clerk" // the user of the jobs
	idPrefix = "clerk-txn"
	group    = "clerk-lag"
)

func startSecured(t *testing.T) *secured {
	t.Helper()
	dir := t.TempDir()
	s := &secured{t: t, caFile: filepath.Join(dir, "ca.crt"), wrong: filepath.Join(dir, "wrong")}
	good, bad := "hunter-"+ulid.Make().String(), "wrong-"+ulid.Make().String()
	authority, err := testca.New("weir tests")
	require.NoError(t, err)
	pair, err := authority.Node(clerk, time.Now().Add(time.Hour))
	require.NoError(t, err)
	keyLine := strings.Split(string(pair.Key), "\n")[1]
	s.secrets = []string{good, bad, keyLine}
	for name, content := range map[string][]byte{
		s.caFile: authority.PEM(), s.wrong: []byte(bad + "\n"), filepath.Join(dir, "clerk.crt"): pair.Cert, filepath.Join(dir, "clerk.key"): pair.Key,
	} {
		require.NoError(t, os.WriteFile(name, content, 0o600))
	}
	cfg, err := kafkatest.SecureConfig(t.TempDir(), authority, map[string]string{clerk: good})
	require.NoError(t, err)
	broker := kafkatest.StartFor(t, cfg)
	require.NoError(t, broker.SetScram(t.Context(), clerk, good))
	s.in, s.out = broker.Topic(t, 1, nil), broker.Topic(t, 1, nil)
	s.Cluster = harness.StartWith(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 2, Environment: func(string) []string { return []string{"CLERK_PASSWORD=" + good} },
	}, broker)
	return s
}

func (s *secured) rights() []kafkatest.Right {
	return []kafkatest.Right{
		{Topic: s.in, Operation: kmsg.ACLOperationRead},
		{Topic: s.out, Operation: kmsg.ACLOperationWrite},
		{Group: group, Operation: kmsg.ACLOperationRead},
		{TransactionalID: idPrefix, Operation: kmsg.ACLOperationWrite},
	}
}

// args are those of `weir submit` for a job that logs in at a listener.
func (s *secured) args(listener string, more ...string) []string {
	return append([]string{
		s.Binaries.Job, "--", "--shape", "pass", "--brokers", s.Broker.At(listener), "--in", s.in, "--out", s.out,
		"--user", clerk, "--password", "${env:CLERK_PASSWORD}", "--prefix", idPrefix, "--group", group, "--interval", "300ms",
	}, more...)
}

// passes sends a record of its own through the job.
func (s *secured) passes(t *testing.T) {
	t.Helper()
	value := ulid.Make().String()
	s.Produce(&kgo.Record{Topic: s.in, Value: []byte(value)})
	s.passed(t, value)
}

func (s *secured) passed(t *testing.T, value string) {
	t.Helper()
	harness.Eventually(t, time.Minute, "a record to pass", func() error {
		for _, r := range s.Committed(s.out) {
			if string(r.Value) == value {
				return nil
			}
		}
		return errors.New("it has not come out")
	})
}

// run submits the job, passes a record through it and leaves it running.
func (s *secured) run(t *testing.T, args []string) string {
	t.Helper()
	id := strings.TrimSpace(s.MustWeir(append([]string{"submit"}, args...)...))
	s.WaitState(id, "RUNNING", 30*time.Second)
	s.passes(t)
	return id
}

// leaves waits until the job is not in the attempt any more in which it ran, and `weir show` holds each part.
func (s *secured) leaves(t *testing.T, id, attempt string, parts ...string) {
	t.Helper()
	begin := time.Now()
	harness.Eventually(t, time.Minute, "the job to leave RUNNING with the cause", func() error {
		shown := s.MustWeir("show", id)
		if v := s.Job(id); v.State == "JOB_STATE_RUNNING" && v.Attempt == attempt {
			return fmt.Errorf("it runs\n%s", shown)
		}
		for _, part := range parts {
			if !strings.Contains(shown, part) {
				return &missingError{part, shown}
			}
		}
		return nil
	})
	t.Logf("left RUNNING after %s", time.Since(begin).Round(100*time.Millisecond))
}

// Whatever the cluster refuses is told by name within the bound of [refused], and what was secret stays so.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	ctx := t.Context()
	encrypted := func(more ...string) []string {
		return s.args(kafkatest.Encrypted, append([]string{"--ca", s.caFile}, more...)...)
	}
	for _, client := range []string{"native", "confluent"} {
		with := func(args []string) []string { return append(args, "--client", client) }
		t.Run(client, func(t *testing.T) {
			require.NoError(t, s.Broker.Grant(ctx, clerk, s.rights()...))
			t.Run("wrong password", func(t *testing.T) {
				refused(t, s.Cluster, nil, with(s.args(kafkatest.Password, "--password", "${file:"+s.wrong+"}")), "authentication failed", "user, password")
				refused(t, s.Cluster, nil, with(s.args(kafkatest.Password, "--password", "${file:"+s.wrong+"}", "--mechanism", "SCRAM-SHA-512")), "authentication failed")
			})
			t.Run("expired certificate", func(t *testing.T) {
				refused(t, s.Cluster, nil, with(s.args(kafkatest.Expired, "--ca", s.caFile)), "certificate", "expired", s.Broker.At(kafkatest.Expired))
			})
			t.Run("certificate of an unknown authority", func(t *testing.T) {
				other, err := testca.New("somebody else")
				require.NoError(t, err)
				file := filepath.Join(t.TempDir(), "other.crt")
				require.NoError(t, os.WriteFile(file, other.PEM(), 0o600))
				refused(t, s.Cluster, nil, with(s.args(kafkatest.Encrypted, "--ca", file)), "certificate", "authorit", s.Broker.At(kafkatest.Encrypted))
			})
			t.Run("no client certificate", func(t *testing.T) {
				refused(t, s.Cluster, nil, with(s.args(kafkatest.Certificate, "--ca", s.caFile, "--user", "")), "certificate")
			})
			for _, c := range []struct {
				name  string
				right int
				parts []string
			}{
				{"no right on the input topic", 0, []string{"authorisation failed", "topic", s.in}},
				{"no right on the output topic", 1, []string{"authorisation failed", "topic", s.out}},
				{"no right on the group", 2, []string{"authorisation failed", "group", group}},
				{"no right on the transactional id", 3, []string{"authorisation failed", "Write", "transactional id", idPrefix}},
			} {
				t.Run(c.name, func(t *testing.T) {
					require.NoError(t, s.Broker.Revoke(ctx, clerk, s.rights()[c.right]))
					refused(t, s.Cluster, nil, with(encrypted()), c.parts...)
					require.NoError(t, s.Broker.Grant(ctx, clerk, s.rights()[c.right]))
				})
			}
			t.Run("no right but to look", func(t *testing.T) {
				for i, operation := range []string{"Read", "Write"} {
					look := kafkatest.Right{Topic: s.rights()[i].Topic, Operation: kmsg.ACLOperationDescribe}
					require.NoError(t, s.Broker.Revoke(ctx, clerk, s.rights()[i]))
					require.NoError(t, s.Broker.Grant(ctx, clerk, look))
					refused(t, s.Cluster, nil, with(encrypted()), "authorisation failed", operation, look.Topic)
					require.NoError(t, s.Broker.Grant(ctx, clerk, s.rights()[i]))
					require.NoError(t, s.Broker.Revoke(ctx, clerk, look))
				}
			})
			t.Run("no right but to look at the group", func(t *testing.T) {
				look := kafkatest.Right{Group: group, Operation: kmsg.ACLOperationDescribe}
				require.NoError(t, s.Broker.Revoke(ctx, clerk, s.rights()[2]))
				require.NoError(t, s.Broker.Grant(ctx, clerk, look))
				refused(t, s.Cluster, nil, with(encrypted()), "authorisation failed", "Read", "group", group)
				require.NoError(t, s.Broker.Grant(ctx, clerk, s.rights()[2]))
				require.NoError(t, s.Broker.Revoke(ctx, clerk, look))
			})
			t.Run("taken away while running", func(t *testing.T) {
				id := s.run(t, with(encrypted("--mechanism", "SCRAM-SHA-256", "--password", "${env:CLERK_PASSWORD}")))
				for _, r := range s.rights() {
					attempt := s.WaitState(id, "RUNNING", time.Minute).Attempt
					require.NoError(t, s.Broker.Revoke(ctx, clerk, r))
					value := ulid.Make().String()
					s.Produce(&kgo.Record{Topic: s.in, Value: []byte(value)})
					s.leaves(t, id, attempt, "authorisation failed", r.Topic+r.Group+r.TransactionalID)
					require.NoError(t, s.Broker.Grant(ctx, clerk, r))
					s.passed(t, value)
				}
				s.searchForSecrets(t, id)
				s.MustWeir("cancel", id)
				s.WaitState(id, "CANCELED", 30*time.Second)
			})
			t.Run("password changed while running", func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "password")
				set := func(password string) { require.NoError(t, os.WriteFile(file, []byte(password), 0o600)) }
				first, second := "first-"+ulid.Make().String(), "second-"+ulid.Make().String()
				s.secrets = append(s.secrets, first, second)
				require.NoError(t, s.Broker.SetScram(ctx, clerk, first))
				set(first)
				id := s.run(t, with(encrypted("--mechanism", "SCRAM-SHA-512", "--password", "${file:"+file+"}")))
				attempt := s.Job(id).Attempt
				require.NoError(t, s.Broker.SetScram(ctx, clerk, second))
				s.leaves(t, id, attempt, "authentication failed")
				set(second)
				s.passes(t)
				s.searchForSecrets(t, id)
				s.MustWeir("cancel", id)
				s.WaitState(id, "CANCELED", 30*time.Second)
				require.NoError(t, s.Broker.SetScram(ctx, clerk, s.secrets[0]))
			})
			t.Run("with a client certificate", func(t *testing.T) {
				dn := "CN=" + clerk
				require.NoError(t, s.Broker.Grant(ctx, dn, s.rights()...))
				id := s.run(t, with(s.args(kafkatest.Certificate, "--user", "", "--ca", "${file:"+s.caFile+"}",
					"--cert", "${file:"+filepath.Join(filepath.Dir(s.caFile), "clerk.crt")+"}", "--key", filepath.Join(filepath.Dir(s.caFile), "clerk.key"))))
				s.searchForSecrets(t, id)
				s.MustWeir("cancel", id)
				s.WaitState(id, "CANCELED", 30*time.Second)
			})
			require.NoError(t, s.Broker.Revoke(ctx, clerk, s.rights()...))
		})
	}
}

// searchForSecrets looks through everything that the cluster writes and prints.
func (s *secured) searchForSecrets(t *testing.T, id string) {
	t.Helper()
	printed := map[string]string{}
	for _, args := range [][]string{
		{"list", "--all"},
		{"list", "--all", "-o", "json"},
		{"show", id},
		{"show", id, "-o", "json"},
		{"checkpoints", id},
		{"checkpoints", id, "-o", "json"},
		{"logs", id},
		{"explain", id},
		{"explain", id, "-o", "json"},
		{"members"},
		{"config", "taskmanager", "--config", filepath.Join(s.Dir, "tm1.yaml")},
	} {
		r := s.Weir(args...)
		require.Zero(t, r.Code, "%v: %s", args, r.Stderr)
		printed["weir "+strings.Join(args, " ")] = r.Stdout + r.Stderr
	}
	require.Contains(t, printed["weir show "+id], "${", "the reference is shown")
	pid, _, err := s.WorkerOf()
	require.NoError(t, err)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	require.NoError(t, err)
	printed["the worker's command line"] = string(line)
	files := 0
	err = filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // files come and go
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		for _, secret := range s.secrets {
			require.False(t, bytes.Contains(content, []byte(secret)), "%s holds a secret", path)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 10)
	for what, text := range printed {
		for _, secret := range s.secrets {
			require.NotContains(t, text, secret, what)
		}
	}
}
