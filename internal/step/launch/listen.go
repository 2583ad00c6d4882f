package launch

import (
	"context"
	"net"
	"time"

	"github.com/greylag/greylag/internal/step/stream"
)

// maxUnproved bounds the connections that have not proved the key yet; others wait for one of them.
const maxUnproved = 64

// maxAddresses is what the controllers accept.
const maxAddresses = 64

// keepAlive finds a node that is gone within 45 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6}

// accept calls connected for each node of the step that connects, until ctx or the listener ends.
// Other peers are closed without effect. It returns when no call is under way.
func accept(ctx context.Context, listener net.Listener, secret *stream.Secret, connected func(*stream.Conn, int)) {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxUnproved)
	for {
		slots <- struct{}{}
		raw, err := listener.Accept()
		if err != nil {
			break
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetKeepAliveConfig(keepAlive) // without it a lost host is found later
		}
		go func() {
			defer func() { <-slots }()
			if conn, node, err := secret.Accept(ctx, raw); err == nil {
				connected(conn, node)
			}
		}()
	}
	for range maxUnproved - 1 {
		slots <- struct{}{}
	}
}

// Addresses returns the addresses at which the nodes of a job may reach a listener on all
// interfaces of this host; the loopback address, for the host itself, is the last.
func Addresses(listener net.Listener) ([]string, error) {
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var list, six []string // programs that write HOST:PORT need an address without colons
	for _, address := range all {
		network, ok := address.(*net.IPNet)
		switch {
		case !ok || !network.IP.IsGlobalUnicast():
		case network.IP.To4() != nil:
			list = append(list, net.JoinHostPort(network.IP.String(), port))
		default:
			six = append(six, net.JoinHostPort(network.IP.String(), port))
		}
	}
	list = append(list, six...)
	return append(list[:min(len(list), maxAddresses-1)], net.JoinHostPort("127.0.0.1", port)), nil
}
