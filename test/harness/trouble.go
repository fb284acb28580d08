package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/taskmanager"
)

// BrokerParty names the broker as a party of a [Trouble].
const BrokerParty = "broker"

// Trouble is what a network does to everything between two parties. They are ids of nodes, or BrokerParty; an empty one is everybody.
// Without Delay and Refuse nothing passes, and nobody is told.
type Trouble struct {
	A, B string
	// Delay is how much later each piece arrives, in both directions.
	Delay time.Duration
	// Refuse breaks the connections and refuses new ones.
	Refuse bool
}

func (t *Trouble) meets(l *link) bool {
	is := func(party, id string) bool { return party == "" || party == id }
	return is(t.A, l.origin) && is(t.B, l.to) || is(t.B, l.origin) && is(t.A, l.to)
}

// Trouble makes trouble until the function that it returns is called.
func (w *Network) Trouble(t Trouble) (end func()) {
	w.mu.Lock()
	w.troubles[&t] = true // from here on, new connections are looked up
	w.mu.Unlock()
	w.identify()
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.Refuse {
		w.breakLinks(&t)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.troubles, &t)
		w.healed.Broadcast()
	}
}

// Break breaks the connections between two parties once; new ones are let through. An empty party is everybody.
func (w *Network) Break(a, b string) {
	w.identify()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakLinks(&Trouble{A: a, B: b})
}

// Isolate drops everything to and from a node.
func (w *Network) Isolate(p *localcluster.Process) { w.Trouble(Trouble{A: p.ID}) }

// Heal ends every trouble.
func (w *Network) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.troubles)
	w.healed.Broadcast()
}

// Broker returns the address that a broker is to advertise; SetBroker tells later where it listens.
func (w *Network) Broker() string {
	if w.broker == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
		w.broker, w.proxies = l, append(w.proxies, l)
	}
	return w.broker.Addr().String()
}

// SetBroker begins to lead connections to the broker.
func (w *Network) SetBroker(target string) { w.serve(w.broker, BrokerParty, target) }

// workerPorts is how many workers of one TaskManager may listen at the same time.
const workerPorts = 12

// ConfigureTaskManager makes the workers of a TaskManager reachable through the network only: they advertise another loopback address
// than the one on which they listen.
func (w *Network) ConfigureTaskManager(cfg *taskmanager.Config) {
	var number int
	_, err := fmt.Sscanf(cfg.Host, "tm%d", &number)
	require.NoError(w.t, err)
	host := fmt.Sprintf("127.1.0.%d", number)
	for first := 20000 + os.Getpid()%200*workerPorts; ; first += workerPorts {
		require.Less(w.t, first, 32000, "no range of free ports")
		listeners, free := listenAll(host, first)
		if !free {
			continue
		}
		w.proxies = append(w.proxies, listeners...)
		for i, l := range listeners {
			w.serve(l, cfg.Host, fmt.Sprintf("%s:%d", cfg.BindHost, first+i))
		}
		cfg.AdvertiseHost = host
		cfg.WorkerPorts.First, cfg.WorkerPorts.Last = uint16(first), uint16(first+workerPorts-1)
		return
	}
}

func listenAll(host string, first int) (out []net.Listener, ok bool) {
	for port := first; port < first+workerPorts; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
		if err != nil {
			for _, l := range out {
				_ = l.Close()
			}
			return nil, false
		}
		out = append(out, l)
	}
	return out, true
}

// breakLinks closes the connections that t meets.
func (w *Network) breakLinks(t *Trouble) {
	for l := range w.links {
		if t.meets(l) {
			_ = l.client.Close()
			if l.server != nil {
				_ = l.server.Close()
			}
		}
	}
}

// pass waits until nothing holds a connection up, and returns by how much what passes is late; false when the connection is to be
// closed.
func (w *Network) pass(l *link) (delay time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed {
		held := false
		delay = 0
		for t := range w.troubles {
			switch {
			case !t.meets(l):
			case t.Refuse:
				return 0, false
			case t.Delay > 0:
				delay = max(delay, t.Delay)
			default:
				held = true
			}
		}
		if !held {
			return delay, true
		}
		w.healed.Wait()
	}
	return 0, false
}

// identify finds out where the given connections come from; without one, all of which it is not known. The kernel's list of connections
// is not read in one piece and may miss one that is there, so that a connection has to be missing many times to be taken for closed.
func (w *Network) identify(only ...*link) {
	unknown := make(map[string]*link) // by the two addresses
	w.mu.Lock()
	if len(only) == 0 {
		for l := range w.links {
			only = append(only, l)
		}
	}
	for _, l := range only {
		if !l.known {
			unknown[addressPair(l.client.RemoteAddr(), l.client.LocalAddr())] = l
		}
	}
	w.mu.Unlock()
	const tries = 20
	for try := 0; try < tries && len(unknown) > 0; try++ {
		inodes := socketInodes(unknown)
		owners := w.ownersOf(inodes)
		w.mu.Lock()
		for pair, inode := range inodes {
			unknown[pair].origin, unknown[pair].known = owners[inode], true
			delete(unknown, pair)
		}
		w.mu.Unlock()
	}
}

// ownersOf returns the nodes by their sockets, which are looked up again when one of the given ones is not known.
func (w *Network) ownersOf(inodes map[string]string) map[string]string {
	w.ownerMu.Lock()
	defer w.ownerMu.Unlock()
	for _, inode := range inodes {
		if _, ok := w.owner[inode]; !ok {
			w.owner = w.owners(inodes)
			break
		}
	}
	return w.owner
}

// owners returns the nodes by the sockets that they and their workers have, and an empty one for those of the given sockets that belong
// to nobody.
func (w *Network) owners(inodes map[string]string) map[string]string {
	out := make(map[string]string)
	for _, inode := range inodes {
		out[inode] = ""
	}
	for _, p := range w.nodes() {
		for _, pid := range append(p.Children(), p.PID()) {
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			for _, fd := range fds {
				to, _ := os.Readlink(fd)
				if inode, ok := strings.CutPrefix(to, "socket:["); ok {
					out[strings.TrimSuffix(inode, "]")] = p.ID
				}
			}
		}
	}
	return out
}

// socketInodes returns the inodes of this machine's sockets that connect two addresses, as far as they are listed.
func socketInodes(of map[string]*link) map[string]string {
	out := make(map[string]string)
	text, _ := os.ReadFile("/proc/net/tcp")
	for _, line := range strings.Split(string(text), "\n") {
		// sl local remote state queues timer retransmits uid timeout inode; closed ones have inode 0
		if f := strings.Fields(line); len(f) > 9 && f[9] != "0" {
			if pair := f[1] + " " + f[2]; of[pair] != nil {
				out[pair] = f[9]
			}
		}
	}
	return out
}

// addressPair returns two addresses as the kernel lists them.
func addressPair(from, to net.Addr) string {
	hex := func(addr net.Addr) string {
		a := addr.(*net.TCPAddr)
		ip := a.IP.To4()
		return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
	}
	return hex(from) + " " + hex(to)
}
