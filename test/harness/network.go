package harness

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
)

// Network stands between the JobManagers, and between them and everybody else: each is reached through two proxies only. So are the
// workers of a TaskManager with ConfigureTaskManager, and a broker that advertises Broker. What happens between whom is told by
// [Trouble]s. An isolated node gets and sends nothing while its connections stand, as when packets are dropped. What was sent meanwhile
// arrives after the healing, as it would when TCP repeats it. A new connection to or from an isolated node is taken and stays silent.
//
// A connection's origin is the node that owns its other end, which the kernel tells; workers belong to their TaskManager.
type Network struct {
	t     testing.TB
	nodes func() []*localcluster.Process

	mu       sync.Mutex
	healed   *sync.Cond
	troubles map[*Trouble]bool
	closed   bool
	links    map[*link]bool
	proxies  []net.Listener
	wg       sync.WaitGroup

	raft, grpc []string // addresses of the proxies
	broker     net.Listener
	direct     map[string]string

	asked   []*link // whose origin is to be looked up
	looking bool
}

// link is one connection through the network.
type link struct {
	client net.Conn
	server net.Conn // nil before it is joined
	origin string   // id of the node that it comes from; empty for anybody else, or while nobody needs to know
	to     string   // id of the node that it is for
	// origins is closed when the origin has been looked up; nil while nobody has asked.
	origins chan struct{}
}

// NewNetwork prepares a network for n JobManagers. Its Configure goes into the cluster's configuration; Of comes after its start.
func NewNetwork(t testing.TB, n int) *Network {
	t.Helper()
	w := &Network{
		t: t, nodes: func() []*localcluster.Process { return nil }, troubles: make(map[*Trouble]bool), links: make(map[*link]bool),
		direct: make(map[string]string),
	}
	w.healed = sync.NewCond(&w.mu)
	t.Cleanup(w.close)
	for range 2 * n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		w.proxies = append(w.proxies, l)
	}
	for i := range n {
		w.raft = append(w.raft, w.proxies[i].Addr().String())
		w.grpc = append(w.grpc, w.proxies[n+i].Addr().String())
	}
	return w
}

// Of tells the network which processes there are.
func (w *Network) Of(c *Cluster) {
	w.nodes = func() []*localcluster.Process { return append(c.JobManagers(), c.TaskManagers()...) }
}

// Configure makes a JobManager reachable through the network only.
func (w *Network) Configure(cfg *jobmanager.Config) {
	cfg.Members = slices.Clone(cfg.Members)
	for i := range cfg.Members {
		cfg.Members[i].RaftAddress = w.raft[i]
	}
	i := slices.IndexFunc(cfg.Members, func(m jobmanager.Member) bool { return m.ID == cfg.ID })
	cfg.RaftAdvertise, cfg.Advertise = w.raft[i], w.grpc[i]
	w.direct[cfg.ID] = cfg.Listen
	w.serve(w.proxies[i], cfg.ID, cfg.RaftListen)
	w.serve(w.proxies[len(cfg.Members)+i], cfg.ID, cfg.Listen)
}

// Direct returns the gRPC address that a client on the JobManager's own side of an isolation uses.
func (w *Network) Direct(p *localcluster.Process) string { return w.direct[p.ID] }

func (w *Network) close() {
	w.mu.Lock()
	w.closed = true
	for l := range w.links {
		_ = l.client.Close()
		if l.server != nil {
			_ = l.server.Close()
		}
	}
	for _, l := range w.proxies {
		_ = l.Close()
	}
	w.healed.Broadcast()
	w.mu.Unlock()
	w.wg.Wait()
}

func (w *Network) serve(l net.Listener, id, target string) {
	w.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.connect(client, id, target) })
		}
	})
}

// connect joins a connection with the node that it is for, as soon as nothing is between the two.
func (w *Network) connect(client net.Conn, id, target string) {
	defer client.Close()
	l := &link{client: client, to: id}
	if !w.add(l) {
		return
	}
	defer w.remove(l)
	if w.doubtful(l) {
		w.identify([]*link{l})
	}
	if _, ok := w.pass(l); !ok {
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !w.join(l, server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			w.carry(l, way[0], way[1])
			_, _ = client.Close(), server.Close()
		})
	}
	both.Wait()
}

func (w *Network) carry(l *link, from, to net.Conn) {
	buf := make([]byte, 128<<10)
	for {
		n, err := from.Read(buf)
		delay, ok := w.pass(l)
		if !ok {
			return
		}
		if n > 0 {
			time.Sleep(delay)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *Network) add(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.links[l] = true
	return true
}

func (w *Network) join(l *link, server net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.server = server
	return !w.closed
}

func (w *Network) remove(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, l)
}
