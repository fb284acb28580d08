package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-stream/weir/statebackend/blob"
)

const (
	// probeTimeout is how long storage may take to tell whether it is the cluster's, before another member gets its turn.
	probeTimeout = 5 * time.Second
	// lookAtStorageEvery is the pause between two looks of a member that does not lead.
	lookAtStorageEvery = 5 * time.Second
)

// errOtherStorage: the storage that is set is not the cluster's.
var errOtherStorage = errors.New("set it to the storage that the other JobManagers use, or mount it")

// probeObject names the object by which nodes tell whether they see the cluster's storage.
func probeObject(clusterID string) string { return clusterID + "/probe" }

// prober asks storage that may hang whether it is the cluster's. It is for one goroutine.
type prober struct {
	bucket  blob.Bucket
	probing chan probed // the answer of a probe that has not come back; nil without
}

// probed is what a probe has found.
type probed struct {
	content string
	err     error
}

// probe returns the content of a cluster's probe object. It gives up in time, and hears later what a call that hangs has found.
func (p *prober) probe(ctx context.Context, object string) (string, error) {
	if p.probing == nil {
		answer := make(chan probed, 1)
		p.probing = answer
		go func() {
			content, err := read(context.WithoutCancel(ctx), p.bucket, object)
			answer <- probed{content, err}
		}()
	}
	select {
	case a := <-p.probing:
		p.probing = nil
		return a.content, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(probeTimeout):
		return "", fmt.Errorf("storage_url: %s does not answer within %s", p.bucket.URL(), probeTimeout)
	}
}

// read returns the content of a probe object, or an errOtherStorage.
func read(ctx context.Context, bucket blob.Bucket, object string) (string, error) {
	r, err := bucket.Open(ctx, object)
	if errors.Is(err, blob.ErrNotExist) {
		return "", fmt.Errorf("storage_url: %s does not hold the cluster's files (there is no %s): %w", bucket.URL(), object, errOtherStorage)
	}
	if err != nil {
		return "", fmt.Errorf("storage_url: %w", err)
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, 1024))
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("storage_url: %s/%s is empty: %w", bucket.URL(), object, errOtherStorage)
	}
	return string(content), err
}

// watchStorage looks from time to time, while another member leads, whether this one could: whether it reaches the cluster's storage.
// A leader finds out by itself.
func (s *Server) watchStorage(ctx context.Context) {
	storage := prober{bucket: s.bucket}
	for {
		var trouble string
		if cluster := s.View().ClusterID(); cluster != "" && !s.node.IsLeader() {
			if _, err := storage.probe(ctx, probeObject(cluster)); err != nil {
				trouble = "could not lead: " + err.Error()
			}
		}
		if ctx.Err() != nil {
			return
		}
		if s.node.SetTrouble("storage", trouble) && trouble != "" {
			s.logger.Warn("this JobManager could not lead", "reason", trouble)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookAtStorageEvery):
		}
	}
}
