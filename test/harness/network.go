package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
)

// Network stands between the JobManagers, and between them and everybody else: each is reached through two proxies only, and an
// isolated one gets and sends nothing while its connections stand, as when packets are dropped. What was sent meanwhile arrives
// after the healing, as it would when TCP repeats it. A new connection to or from an isolated node is taken and stays silent.
//
// A connection's origin is the process that owns its other end, which the kernel tells.
type Network struct {
	nodes func() []*localcluster.Process

	mu       sync.Mutex
	healed   *sync.Cond
	isolated map[string]bool
	closed   bool
	links    map[*link]bool
	proxies  []net.Listener
	wg       sync.WaitGroup

	raft, grpc []string // addresses of the proxies
	direct     map[string]string
}

// link is one connection with a JobManager.
type link struct {
	client net.Conn
	server net.Conn // nil before it is joined
	origin string   // id of the JobManager that it comes from; empty for anybody else, or while nobody needs to know
	to     string   // id of the JobManager that it is for
}

// NewNetwork prepares a network for n JobManagers. Its Configure goes into the cluster's configuration; Of comes after its start.
func NewNetwork(t testing.TB, n int) *Network {
	t.Helper()
	w := &Network{
		nodes: func() []*localcluster.Process { return nil }, isolated: make(map[string]bool), links: make(map[*link]bool),
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
func (w *Network) Of(c *Cluster) { w.nodes = c.JobManagers }

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

// Isolate drops everything to and from a JobManager.
func (w *Network) Isolate(p *localcluster.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.origin = w.origin(l.client)
	}
	w.isolated[p.ID] = true
}

// Heal ends every isolation.
func (w *Network) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.isolated)
	w.healed.Broadcast()
}

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

// connect joins a connection with the node that it is for, as soon as neither end is isolated.
func (w *Network) connect(client net.Conn, id, target string) {
	defer client.Close()
	l := &link{client: client, to: id}
	if !w.add(l) {
		return
	}
	defer w.remove(l)
	if !w.pass(l) {
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
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !w.pass(l) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until neither end is isolated; it returns false at the end of the network.
func (w *Network) pass(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && (w.isolated[l.origin] || w.isolated[l.to]) {
		w.healed.Wait()
	}
	return !w.closed
}

func (w *Network) add(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.isolated) > 0 {
		l.origin = w.origin(l.client)
	}
	if !w.closed {
		w.links[l] = true
	}
	return !w.closed
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

// origin returns the id of the JobManager that a connection comes from; empty for anybody else. The kernel's list of connections is not
// read in one piece and may miss one that is there, so that a connection has to be missing many times to be taken for closed.
func (w *Network) origin(c net.Conn) string {
	const tries = 50
	for range tries {
		inode := socketInode(c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr))
		if inode == "" {
			continue
		}
		for _, p := range w.nodes() {
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
			for _, fd := range fds {
				if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
					return p.ID
				}
			}
		}
		return ""
	}
	return ""
}

// socketInode returns the inode of this machine's socket that connects one address with another; empty when it is not listed.
func socketInode(from, to *net.TCPAddr) string {
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	hex := func(a *net.TCPAddr) string {
		ip := a.IP.To4()
		return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
	}
	local, remote := hex(from), hex(to)
	for _, line := range strings.Split(string(text), "\n") {
		// sl local remote state queues timer retransmits uid timeout inode; closed ones have inode 0
		if f := strings.Fields(line); len(f) > 9 && f[1] == local && f[2] == remote && f[9] != "0" {
			return f[9]
		}
	}
	return ""
}
