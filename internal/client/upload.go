package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// chunkBytes is the size of one piece of a job binary; the protocol allows 1 MiB.
const chunkBytes = 512 << 10

// Upload sends a job binary of which the hash and size are known. It may be repeated: an upload cut short changes nothing.
func (c *Client) Upload(ctx context.Context, binary io.ReadSeeker, hash string, size int64) error {
	return c.Ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		if _, err := binary.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("reading the binary: %w", err)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := jobv1.NewJobServiceClient(conn).UploadArtifact(ctx)
		if err != nil {
			return err
		}
		if err := send(stream, &jobv1.UploadArtifactRequest{Sha256: hash, Size: uint64(size)}, binary); err != nil {
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	})
}

// send sends the announcement and the content; io.EOF from the stream means that the answer is there already.
func send(stream jobv1.JobService_UploadArtifactClient, m *jobv1.UploadArtifactRequest, content io.Reader) error {
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			m.Chunk = buf[:n]
			if sendErr := stream.Send(m); errors.Is(sendErr, io.EOF) {
				return nil
			} else if sendErr != nil {
				return sendErr
			}
			m = &jobv1.UploadArtifactRequest{}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the binary: %w", err)
		}
	}
}
