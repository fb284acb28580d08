package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/statebackend/blob"
)

// maxArtifact bounds a job binary, in bytes.
const maxArtifact = 2 << 30

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// UploadArtifact implements jobv1.JobServiceServer. The binary becomes visible only when all of it is there and has its hash.
func (s *Services) UploadArtifact(stream jobv1.JobService_UploadArtifactServer) error {
	l, err := s.leader(stream.Context())
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	sha := first.GetSha256()
	switch {
	case !sha256Pattern.MatchString(sha):
		return fmt.Errorf("%w: the first message must hold the binary's SHA-256 in lower-case hex, not %q", grpcerr.ErrInvalid, sha)
	case first.GetSize() > maxArtifact:
		return fmt.Errorf("%w: the job binary has %d bytes, at most %d are allowed; strip it (-ldflags='-s -w')", grpcerr.ErrInvalid, first.GetSize(), int64(maxArtifact))
	}
	l.Jobs.UseArtifact(sha)
	name := driver.ArtifactName(l.ClusterID, sha)
	there, err := s.exists(stream.Context(), name)
	if err != nil {
		return err
	}
	if !there {
		r := &uploadReader{stream: stream, chunk: first.GetChunk(), size: first.GetSize(), sha: sha, sum: sha256.New()}
		if err := s.bucket.Put(stream.Context(), name, r); err != nil && !errors.Is(err, blob.ErrExists) {
			if errors.Is(err, grpcerr.ErrArtifactCorrupt) {
				return err
			}
			return fmt.Errorf("%w: job binary: %w", grpcerr.ErrStorage, err)
		}
		s.logger.Info("job binary stored", "sha256", sha, "bytes", first.GetSize())
	}
	return stream.SendAndClose(&jobv1.UploadArtifactResponse{Sha256: sha})
}

func (s *Services) exists(ctx context.Context, name string) (bool, error) {
	_, err := s.bucket.Stat(ctx, name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, blob.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("%w: %w", grpcerr.ErrStorage, err)
}

// uploadReader reads the chunks of an upload, and ends with an error instead of io.EOF unless size and hash are as announced.
type uploadReader struct {
	stream jobv1.JobService_UploadArtifactServer
	chunk  []byte
	size   uint64
	read   uint64
	sha    string
	sum    hash.Hash
}

func (r *uploadReader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 {
		msg, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, r.verify()
		} else if err != nil {
			return 0, err
		}
		r.chunk = msg.GetChunk()
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	r.sum.Write(p[:n])
	if r.read += uint64(n); r.read > r.size {
		return n, fmt.Errorf("%w: more than the %d bytes announced", grpcerr.ErrArtifactCorrupt, r.size)
	}
	return n, nil
}

func (r *uploadReader) verify() error {
	got := hex.EncodeToString(r.sum.Sum(nil))
	if r.read != r.size || got != r.sha {
		return fmt.Errorf("%w: %d bytes with SHA-256 %s arrived, %d bytes with %s were announced", grpcerr.ErrArtifactCorrupt, r.read, got, r.size, r.sha)
	}
	return io.EOF
}
