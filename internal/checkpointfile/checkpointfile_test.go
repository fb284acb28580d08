package checkpointfile_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
)

var update = flag.Bool("update", false, "write the golden file of the current format")

const goldenPath = "testdata/metadata-v1.bin"

func sample() *snapshotv1.CheckpointMetadata {
	return &snapshotv1.CheckpointMetadata{
		FormatVersion: 1, ClusterId: "c", JobId: "j", Attempt: 3, Checkpoint: 12, Fingerprint: "f", MaxParallelism: 128,
		TriggeredAtMs: 1_800_000_000_000, Savepoint: true,
		Tasks: []*snapshotv1.TaskHandle{
			{
				Vertex: "src", Snapshot: []byte("offsets 750 and 751"), Committables: 2,
				Files: []*snapshotv1.FileReference{{Name: "c/jobs/j/state/3/src-0/x/12-0", Size: 77, Checkpoint: 12}},
			},
			{Vertex: "big", Subtask: 1, Ended: true, Spilled: &snapshotv1.Segment{Name: "big", Size: 1 << 21, Crc32C: 7}},
		},
	}
}

func golden(t testing.TB) []byte {
	data, err := os.ReadFile(goldenPath)
	require.NoError(t, err)
	return data
}

func TestGolden(t *testing.T) {
	data, err := checkpointfile.Encode(sample())
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(goldenPath, data, 0o600))
	}
	m, err := checkpointfile.Decode("m", golden(t))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(sample(), m, protocmp.Transform()))
	require.Equal(t, golden(t)[:8], data[:8], "the format has changed: give it another version")
}

func TestEveryChangeIsNoticed(t *testing.T) {
	good := golden(t)
	refused := func(what string, data []byte) {
		_, err := checkpointfile.Decode("c/jobs/j/checkpoints/12/metadata", data)
		require.ErrorIs(t, err, checkpointfile.ErrDamaged, what)
		require.ErrorContains(t, err, "checkpoint metadata c/jobs/j/checkpoints/12/metadata is damaged", what)
	}
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), bad)
		}
		bad := append([]byte(nil), good...)
		bad[i] ^= 0xff
		refused(fmt.Sprintf("byte %d", i), bad)
		refused(fmt.Sprintf("only %d bytes", i), good[:i])
	}
	refused("one byte more", append(append([]byte(nil), good...), 0))
}

func TestOtherVersionIsNamed(t *testing.T) {
	m := sample()
	m.FormatVersion = 99
	data, err := checkpointfile.Encode(m)
	require.NoError(t, err)
	_, err = checkpointfile.Decode("m", data)
	require.ErrorIs(t, err, checkpointfile.ErrVersion)
	require.ErrorContains(t, err, "99")
}

func TestCheckComparesWithTheReference(t *testing.T) {
	ref := checkpointfile.Segment("m", []byte("abc"))
	require.NoError(t, checkpointfile.Check(ref, []byte("abc")))
	require.ErrorIs(t, checkpointfile.Check(ref, []byte("abd")), checkpointfile.ErrDamaged)
	require.ErrorIs(t, checkpointfile.Check(ref, []byte("abcd")), checkpointfile.ErrDamaged)
}

func FuzzDecode(f *testing.F) {
	good := golden(f)
	f.Add(good)
	f.Add(good[:20])
	f.Add([]byte("WEIRCKP"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := checkpointfile.Decode("m", data)
		if err != nil {
			require.Nil(t, m)
			return
		}
		again, err := checkpointfile.Encode(m)
		require.NoError(t, err)
		other, err := checkpointfile.Decode("m", again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(m, other, protocmp.Transform()))
	})
}

func TestNamesOfASavepointAreRelativeToItsFolder(t *testing.T) {
	at := func(metadata string, version uint32) (spilled, file, segment, inline string) {
		m := &snapshotv1.CheckpointMetadata{FormatVersion: version, Tasks: []*snapshotv1.TaskHandle{{
			Spilled: &snapshotv1.Segment{Name: "tasks/1"}, Files: []*snapshotv1.FileReference{{Name: "files/1"}},
		}}}
		task := &snapshotv1.TaskSnapshot{Operators: []*snapshotv1.OperatorSnapshot{{Keyed: &snapshotv1.KeyedSnapshot{
			Segments: []*snapshotv1.Segment{{Name: "files/2"}, {Inline: []byte("x")}},
		}}}}
		checkpointfile.Place(metadata, m)
		checkpointfile.PlaceTask(metadata, m, task)
		segments := task.GetOperators()[0].GetKeyed().GetSegments()
		return m.GetTasks()[0].GetSpilled().GetName(), m.GetTasks()[0].GetFiles()[0].GetName(), segments[0].GetName(), segments[1].GetName()
	}
	for _, c := range []struct{ metadata, folder, query string }{
		{"file:///srv/moved/metadata", "file:///srv/moved/", ""},
		{"s3://bucket/sp/metadata?region=r", "s3://bucket/sp/", "?region=r"},
		{"cluster/sp/metadata", "cluster/sp/", ""},
	} {
		spilled, file, segment, inline := at(c.metadata, checkpointfile.RelativeNames)
		require.Equal(t, []string{c.folder + "tasks/1" + c.query, c.folder + "files/1" + c.query, c.folder + "files/2" + c.query, ""},
			[]string{spilled, file, segment, inline})
	}
	spilled, _, segment, _ := at("file:///srv/moved/metadata", checkpointfile.FormatVersion)
	require.Equal(t, []string{"tasks/1", "files/2"}, []string{spilled, segment}, "names of a checkpoint are relative to storage")
}
