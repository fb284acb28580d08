// Package checkpointfile is the format of a checkpoint's or savepoint's metadata file.
//
// A file is seven bytes of magic, one byte of format version, the CRC32C (Castagnoli, big-endian) of the version byte and the
// payload, and the payload: a weir.snapshot.v1.CheckpointMetadata. Protocol buffers alone would take a flipped bit in a source's
// position for another position, and records would be lost or repeated without an error.
package checkpointfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// FormatVersion is the version of the envelope and of the payload that this program writes and reads. A payload of version
// RelativeNames, that of a savepoint, is the same, and its names are relative to the folder of the metadata file: it can be moved.
const (
	FormatVersion = 1
	RelativeNames = 2
)

const (
	magic      = "WEIRCKP"
	headerSize = len(magic) + 1 + crc32.Size
)

// Errors of Decode, to be tested with errors.Is.
var (
	// ErrDamaged: the content is not what was written, or the file was never a metadata file.
	ErrDamaged = errors.New("is damaged")
	// ErrVersion: the file is whole and of a format that this program does not read.
	ErrVersion = errors.New("has an unknown format version")
)

// Encode returns the content of the metadata file. Equal messages have equal files.
func Encode(m *snapshotv1.CheckpointMetadata) ([]byte, error) {
	data := append(make([]byte, 0, headerSize+proto.Size(m)), magic...)
	data = append(data, FormatVersion, 0, 0, 0, 0)
	data, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(data, m)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint metadata: %w", err)
	}
	binary.BigEndian.PutUint32(data[len(magic)+1:], checksum(data))
	return data, nil
}

// Decode returns what the file called name holds. The error names the file and wraps ErrDamaged or ErrVersion.
func Decode(name string, data []byte) (*snapshotv1.CheckpointMetadata, error) {
	damaged := func(why string) error {
		return fmt.Errorf("checkpoint metadata %s %w: %s; restore from another checkpoint or savepoint", name, ErrDamaged, why)
	}
	if len(data) < headerSize {
		return nil, damaged(fmt.Sprintf("it has %d bytes, fewer than the %d of its header", len(data), headerSize))
	}
	if !strings.HasPrefix(string(data[:len(magic)]), magic) {
		return nil, damaged("it does not begin as such a file does")
	}
	if got, want := checksum(data), binary.BigEndian.Uint32(data[len(magic)+1:]); got != want {
		return nil, damaged(fmt.Sprintf("its checksum is %08x instead of %08x", got, want))
	}
	if v := data[len(magic)]; v != FormatVersion {
		return nil, versionError(name, uint32(v))
	}
	m := &snapshotv1.CheckpointMetadata{}
	if err := proto.Unmarshal(data[headerSize:], m); err != nil {
		return nil, damaged(err.Error())
	}
	if v := m.GetFormatVersion(); v != FormatVersion && v != RelativeNames {
		return nil, versionError(name, v)
	}
	return m, nil
}

func versionError(name string, v uint32) error {
	return fmt.Errorf("checkpoint metadata %s %w: %d, this program reads %d; use a version of Weir that does", name, ErrVersion, v, RelativeNames)
}

// Place gives the names in what Decode returned the place from which the file called name was read.
func Place(name string, m *snapshotv1.CheckpointMetadata) {
	if m.GetFormatVersion() != RelativeNames {
		return
	}
	for _, h := range m.GetTasks() {
		place(name, h.GetSpilled())
		for _, f := range h.GetFiles() {
			f.Name = beside(name, f.GetName())
		}
	}
}

// PlaceTask is Place for the snapshot of a task that m lists.
func PlaceTask(name string, m *snapshotv1.CheckpointMetadata, task *snapshotv1.TaskSnapshot) {
	if m.GetFormatVersion() != RelativeNames {
		return
	}
	for _, op := range task.GetOperators() {
		for _, s := range op.GetKeyed().GetSegments() {
			place(name, s)
		}
	}
}

func place(metadata string, s *snapshotv1.Segment) {
	if s.GetName() != "" { // else it is inline
		s.Name = beside(metadata, s.GetName())
	}
}

// beside returns the name of a file in the folder of a metadata file, whose name may be a URL with a query.
func beside(metadata, name string) string {
	path, query, found := strings.Cut(metadata, "?")
	path = path[:strings.LastIndex(path, "/")+1] + name
	if found {
		path += "?" + query
	}
	return path
}

// Segment returns the reference to a file of the given content.
func Segment(name string, data []byte) *snapshotv1.Segment {
	return &snapshotv1.Segment{Name: name, Size: uint64(len(data)), Crc32C: crc32.Checksum(data, castagnoli())}
}

// Check returns an error that wraps ErrDamaged unless data is what the reference stands for.
func Check(ref *snapshotv1.Segment, data []byte) error {
	if got := Segment(ref.GetName(), data); got.GetSize() != ref.GetSize() || got.GetCrc32C() != ref.GetCrc32C() {
		return fmt.Errorf("checkpoint metadata %s %w: it has %d bytes with checksum %08x, recorded are %d bytes with %08x; "+
			"restore from another checkpoint or savepoint",
			ref.GetName(), ErrDamaged, got.GetSize(), got.GetCrc32C(), ref.GetSize(), ref.GetCrc32C())
	}
	return nil
}

// checksum covers the version byte and the payload.
func checksum(data []byte) uint32 {
	sum := crc32.Checksum(data[len(magic):len(magic)+1], castagnoli())
	return crc32.Update(sum, castagnoli(), data[headerSize:])
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
