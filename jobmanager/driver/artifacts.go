package driver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// artifactAge is the default of Config.ArtifactAge.
	artifactAge = time.Hour
	// artifactRounds is how many times within that age binaries are looked through.
	artifactRounds = 6
)

// artifacts are the job binaries on storage. One goes when no job in the log needs it and nobody has touched it for some time.
type artifacts struct {
	mu   sync.Mutex           // held over a deletion, so that whoever uses a binary either keeps it or finds it gone
	used map[string]time.Time // SHA-256 → last use under this leadership, or when it was first seen; never from the storage's clock
}

// ArtifactName is where a job binary is on storage.
func ArtifactName(clusterID, sha256 string) string { return artifactPrefix(clusterID) + sha256 }

func artifactPrefix(clusterID string) string { return clusterID + "/artifacts/" }

// UseArtifact keeps a job binary from deletion for a while: for an upload that need not be repeated, and until a job of it is in the
// log. Whether it is there must be looked up afterwards.
func (m *Manager) UseArtifact(sha256 string) {
	m.artifacts.mu.Lock()
	defer m.artifacts.mu.Unlock()
	m.artifacts.used[sha256] = time.Now()
}

// cleanArtifacts deletes binaries that nobody needs, from time to time, until the leadership ends.
func (m *Manager) cleanArtifacts() {
	t := time.NewTicker(m.cfg.ArtifactEvery)
	defer t.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-t.C:
			m.cleanArtifactsOnce(m.ctx)
		}
	}
}

func (m *Manager) cleanArtifactsOnce(ctx context.Context) {
	prefix := artifactPrefix(m.cfg.ClusterID)
	var there []string
	for a, err := range m.cfg.Bucket.List(ctx, prefix) {
		if err != nil {
			if ctx.Err() == nil {
				m.cfg.Metrics.deleteErrors.Inc()
				m.cfg.Logger.Warn("search for unused job binaries stopped", "error", err)
			}
			return
		}
		there = append(there, strings.TrimPrefix(a.Name, prefix))
	}
	for _, sha := range m.artifacts.unused(there, m.needed, m.cfg.ArtifactAge) {
		if ctx.Err() != nil {
			return
		}
		m.cleanArtifact(ctx, sha)
	}
}

func (m *Manager) cleanArtifact(ctx context.Context, sha string) {
	m.artifacts.mu.Lock()
	defer m.artifacts.mu.Unlock()
	if time.Since(m.artifacts.used[sha]) < m.cfg.ArtifactAge || m.needed(sha) {
		return
	}
	// A successor may have accepted a job of it meanwhile.
	if m.cfg.Log.Barrier(ctx) != nil || m.needed(sha) {
		return
	}
	if left := m.deleteAll(ctx, []string{ArtifactName(m.cfg.ClusterID, sha)}); len(left) == 0 {
		delete(m.artifacts.used, sha)
		m.cfg.Logger.Info("job binary deleted, since no job needs it", "sha256", sha)
	}
}

// unused returns which of the binaries that are there have been needed by no job for at least age, counted from the first look of this
// leadership and by the monotonic clock: a file's own time is another machine's, and a wall clock jumps.
func (a *artifacts) unused(there []string, needed func(string) bool, age time.Duration) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.used, func(sha string, at time.Time) bool { return time.Since(at) >= age && !slices.Contains(there, sha) })
	var old []string
	for _, sha := range there {
		if at, ok := a.used[sha]; !ok || needed(sha) {
			a.used[sha] = time.Now()
		} else if time.Since(at) >= age {
			old = append(old, sha)
		}
	}
	return old
}

func (m *Manager) needed(sha string) bool {
	for _, rec := range m.cfg.Log.View().Jobs() {
		if rec.GetArtifactSha256() == sha {
			return true
		}
	}
	return false
}
