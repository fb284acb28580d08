package taskmanager_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/taskmanager"
)

func TestDefaultNeedsStorageOnly(t *testing.T) {
	c := taskmanager.Default()
	require.EqualError(t, c.Validate(), "storage_url: must be set to the storage that all nodes share, such as file:///mnt/shared/weir")
	c.StorageURL = "file:///srv/weir"
	require.NoError(t, c.Validate())
}

func TestValidateReportsEveryProblem(t *testing.T) {
	c := taskmanager.Config{
		Slots: 0, JobManagers: []string{"nonsense", "10.0.0.1:6123"}, BindHost: "0.0.0.0", StorageURL: "/srv", AdminAddress: "10.0.0.1:9",
		LogRetention: 1, LogPerWorker: 1, ArtifactCache: 1, SegmentCache: -1, SegmentDownloadRate: -1, SegmentVerifyRate: -1, CancelDeadline: time.Hour,
	}
	err := c.Validate()
	for _, key := range []string{
		"data_dir", "slots", `"nonsense"`, "10.0.0.1:6123", "bind_host", "storage_url", "admin_address", "log_retention", "log_per_worker",
		"artifact_cache", "segment_cache", "segment_downloads", "segment_download_rate", "segment_verify_rate", "cancel_deadline", "connect_timeout", "stall_timeout", "plan_timeout",
	} {
		require.ErrorContains(t, err, key)
	}
	require.Equal(t, 18, strings.Count(err.Error(), "\n")+1)
}

func TestOtherMachinesNeedInsecure(t *testing.T) {
	c := taskmanager.Default()
	c.StorageURL, c.BindHost, c.JobManagers = "file:///srv", "0.0.0.0", []string{"jm1.example:6123"}
	require.ErrorContains(t, c.Validate(), "insecure")
	c.Insecure = true
	require.NoError(t, c.Validate())
}

func TestTLSOpensTheListeners(t *testing.T) {
	c := taskmanager.Default()
	c.StorageURL, c.BindHost, c.JobManagers = "file:///srv", "0.0.0.0", []string{"jm1.example:6123"}
	c.TLSKey = "key.pem"
	require.ErrorContains(t, c.Validate(), "tls_cert, tls_ca: must be set too")
	c.TLSCert, c.TLSCA = "cert.pem", "ca.pem"
	require.NoError(t, c.Validate())
	c.AdminAddress = "0.0.0.0:6126"
	require.ErrorContains(t, c.Validate(), "admin_address: 0.0.0.0:6126")
}

func TestPortRange(t *testing.T) {
	for text, want := range map[string]taskmanager.PortRange{
		"": {}, "7100-7199": {First: 7100, Last: 7199}, "7100": {First: 7100, Last: 7100}, " 1 - 65535 ": {First: 1, Last: 65535},
	} {
		var r, again taskmanager.PortRange
		require.NoError(t, r.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, r)
		require.NoError(t, again.UnmarshalText([]byte(r.String())))
		require.Equal(t, r, again)
	}
	for _, bad := range []string{"7199-7100", "0-1", "1-65536", "-", "a-b", "7100-", "1-2-3"} {
		var r taskmanager.PortRange
		require.ErrorContains(t, r.UnmarshalText([]byte(bad)), "range of ports", bad)
	}
}
