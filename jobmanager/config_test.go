package jobmanager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/jobmanager"
)

func validConfig() jobmanager.Config {
	cfg := jobmanager.Default()
	cfg.DataDir, cfg.Storage = "/var/lib/weir", "file:///srv/weir"
	return cfg
}

func TestDefaultsAreValid(t *testing.T) {
	require.NoError(t, validConfig().Validate())
}

func TestValidateReportsEveryProblemAtOnce(t *testing.T) {
	cfg := validConfig()
	cfg.ID = "jm 1"
	cfg.DataDir = ""
	cfg.Storage = "/srv/weir"
	cfg.Listen = "0.0.0.0:6123"
	cfg.HeartbeatTimeout = cfg.HeartbeatInterval
	cfg.Members = []jobmanager.Member{{ID: "jm2", RaftAddress: "10.0.0.2:0"}, {ID: "jm2", RaftAddress: "10.0.0.3:1"}}
	cfg.RaftElection = time.Millisecond
	err := cfg.Validate()
	for _, want := range []string{
		"id:", "data_dir:", "storage_url:", "listen: 0.0.0.0:6123 is reachable", "advertise: is required", "heartbeat_timeout:",
		"members: id jm2 is listed twice", "members: 2 is even", `"10.0.0.2:0" is not host:port`, `"jm 1" is not in the list`, "raft_election:",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestGraceThatIsTooShortIsWarnedOf(t *testing.T) {
	cfg := validConfig()
	require.Empty(t, cfg.Warnings())
	cfg.HeartbeatTimeout = 12 * time.Second
	require.NoError(t, cfg.Validate())
	require.Len(t, cfg.Warnings(), 1)
	require.Contains(t, cfg.Warnings()[0], "register_grace: 6s is not longer than the 12s")
	cfg = validConfig()
	cfg.HeartbeatInterval = 2 * time.Second
	require.Contains(t, cfg.Warnings()[0], "not longer than the 8s")
}

func TestOtherMachinesNeedInsecure(t *testing.T) {
	cfg := validConfig()
	cfg.Listen, cfg.Advertise = "10.0.0.1:6123", "10.0.0.1:6123"
	require.ErrorContains(t, cfg.Validate(), "--insecure")
	cfg.Insecure = true
	require.NoError(t, cfg.Validate())
}

func TestMembersAreWrittenAsText(t *testing.T) {
	var m jobmanager.Member
	require.NoError(t, m.UnmarshalText([]byte("jm1=10.0.0.1:6124")))
	require.Equal(t, jobmanager.Member{ID: "jm1", RaftAddress: "10.0.0.1:6124"}, m)
	require.Equal(t, "jm1=10.0.0.1:6124", m.String())
	require.Error(t, m.UnmarshalText([]byte("10.0.0.1:6124")))
}

func TestTLSOpensTheListeners(t *testing.T) {
	cfg := validConfig()
	cfg.Listen, cfg.RaftListen = "10.0.0.1:6123", "10.0.0.1:6124"
	require.ErrorContains(t, cfg.Validate(), "listen: 10.0.0.1:6123 is reachable")
	require.ErrorContains(t, cfg.Validate(), "raft_listen: 10.0.0.1:6124 is reachable")
	require.ErrorContains(t, cfg.Validate(), "tls_cert, tls_key and tls_ca")
	cfg.TLSCert = "cert.pem"
	require.ErrorContains(t, cfg.Validate(), "tls_key, tls_ca: must be set too")
	cfg.TLSKey, cfg.TLSCA = "key.pem", "ca.pem"
	require.NoError(t, cfg.Validate())
	cfg.Admin = "10.0.0.1:6125"
	require.ErrorContains(t, cfg.Validate(), "admin_address: 10.0.0.1:6125 is reachable from other machines, and it has no TLS")
	cfg.Insecure = true
	require.NoError(t, cfg.Validate())
	cfg = validConfig()
	cfg.UserCA = "users.pem"
	require.ErrorContains(t, cfg.Validate(), "tls_cert, tls_key, tls_ca: must be set too")
}
