package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/tunnel"
)

// Tunnels opens tunnel connections to the controllers. Inside a job they pass through the node's daemon,
// and a program can connect but not listen.
func (c *Client) Tunnels() tunnel.Controllers {
	if c.calls.socket != "" {
		return tunnel.Node{Socket: c.calls.socket}
	}
	return tunnels{c.calls}
}

type tunnels struct{ calls *failover }

// Open tries the controllers in turn until one knows the ID.
func (t tunnels) Open(ctx context.Context, controller, kind string, id tunnel.ID) (net.Conn, string, error) {
	request, err := tunnel.Request(ctx, kind, id)
	if err == nil {
		err = t.calls.prove(request)
	}
	if err != nil {
		return nil, "", err
	}
	if controller != "" {
		conn, err := t.calls.upgradeAt(ctx, controller, request)
		return conn, controller, err
	}
	return t.calls.upgrade(ctx, request)
}

// upgradeTime bounds the question to one controller, which may wait for the other end of a tunnel.
const upgradeTime = 6 * time.Second

// upgrade asks the controllers in turn, beginning with the one in use.
func (f *failover) upgrade(ctx context.Context, request *http.Request) (net.Conn, string, error) {
	all := f.controllers()
	if len(all) == 0 {
		return nil, "", errors.New("no controller is named")
	}
	first := max(slices.Index(all, f.target()), 0)
	var errs []error
	for i := range all {
		controller := all[(first+i)%len(all)]
		each, cancel := context.WithTimeout(ctx, upgradeTime)
		conn, err := f.upgradeAt(each, controller, request)
		cancel()
		if err == nil {
			return conn, controller, nil
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

func (f *failover) upgradeAt(ctx context.Context, controller string, request *http.Request) (net.Conn, error) {
	transports, err := f.direct()
	if err != nil {
		return nil, err
	}
	request = request.Clone(ctx)
	request.Host = controller
	conn, err := tunnel.Upgrade(ctx, request, "tcp", controller, transports.calls.TLSClientConfig)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", controller, err)
	}
	return conn, nil
}

// maxTunnels bounds the tunnels of a node's jobs.
const maxTunnels = 1024

// connectTunnel opens a tunnel connection for a program inside a job. The header identifies the job.
func (f *Forwarder) connectTunnel(w http.ResponseWriter, original *http.Request, header, value string) {
	if f.tunnels.Add(1) > maxTunnels {
		f.tunnels.Add(-1)
		auth.RefuseRelay(w, http.StatusServiceUnavailable, fmt.Errorf("%w: this node has %d", tunnel.ErrTooMany, maxTunnels))
		return
	}
	defer f.tunnels.Add(-1)
	id, err := tunnel.Requested(original)
	if err != nil {
		auth.RefuseRelay(w, http.StatusBadRequest, err)
		return
	}
	request, err := tunnel.Request(original.Context(), tunnel.Connect, id)
	if err != nil {
		auth.RefuseRelay(w, http.StatusBadRequest, err)
		return
	}
	request.Header.Set(header, value)
	end, _, err := f.calls.upgrade(original.Context(), request)
	if err != nil {
		status := http.StatusBadGateway
		if errors.Is(err, tunnel.ErrNoListener) {
			status = http.StatusNotFound
		}
		auth.RefuseRelay(w, status, err)
		return
	}
	conn, err := tunnel.Switch(w)
	if err != nil {
		end.Close()
		return
	}
	if c, ok := conn.(auth.Slotted); ok {
		c.FreeSlot()
	}
	tunnel.Join(context.Background(), end, conn)
}
