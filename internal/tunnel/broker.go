package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// The limits of a controller.
const (
	maxListeners, maxListenersOfUser     = 4096, 256
	maxConnections, maxConnectionsOfUser = 4096, 1200
	joinTime                             = 5 * time.Second // for the listener to come
	announceTime                         = 5 * time.Second
)

// ErrTooMany refuses a listener or a connection over the limit.
var ErrTooMany = errors.New("too many tunnels")

// Broker joins the connections of both ends at one controller. Safe for concurrent use.
type Broker struct {
	mu        sync.Mutex
	listeners map[ID]*listening
	waiting   map[ID]*joining
	ofUser    map[string]int // listeners
	open      int            // connections
	openOf    map[string]int // of one user
}

// listening is one listener.
type listening struct {
	user     string
	announce chan ID
	gone     chan struct{}
}

// joining is a connection that waits for the listener's end.
type joining struct {
	at   *listening
	came chan net.Conn
}

// NewBroker returns a broker.
func NewBroker() *Broker {
	return &Broker{listeners: map[ID]*listening{}, waiting: map[ID]*joining{}, ofUser: map[string]int{}, openOf: map[string]int{}}
}

// Listening is a registered listener.
type Listening struct {
	broker *Broker
	id     ID
	l      *listening
}

// Listen registers a listener of a user. It replaces one with the same ID of the same user, whose
// connection may be lost without a sign. Serve must follow.
func (b *Broker) Listen(id ID, user string) (*Listening, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.listeners[id]; old != nil {
		if old.user != user {
			return nil, fmt.Errorf("%w: the ID is in use", ErrTooMany)
		}
		b.remove(id, old)
	}
	if len(b.listeners) >= maxListeners || b.ofUser[user] >= maxListenersOfUser {
		return nil, fmt.Errorf("%w: %s has %d listeners here, %d exist in all (limits %d and %d)", ErrTooMany, user, b.ofUser[user], len(b.listeners), maxListenersOfUser, maxListeners)
	}
	l := &listening{user: user, announce: make(chan ID), gone: make(chan struct{})}
	b.listeners[id] = l
	b.ofUser[user]++
	return &Listening{b, id, l}, nil
}

// remove forgets a listener. The caller holds b.mu.
func (b *Broker) remove(id ID, l *listening) {
	if b.listeners[id] != l {
		return
	}
	delete(b.listeners, id)
	close(l.gone)
	if b.ofUser[l.user]--; b.ofUser[l.user] == 0 {
		delete(b.ofUser, l.user)
	}
}

// Serve announces connections to the listener until its connection or ctx ends.
func (x *Listening) Serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer x.Drop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, conn) // until it ends; a listener sends nothing
		cancel()
	}()
	for {
		select {
		case id := <-x.l.announce:
			if conn.SetWriteDeadline(time.Now().Add(announceTime)) != nil {
				return
			}
			if _, err := conn.Write(id[:]); err != nil {
				return
			}
		case <-x.l.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Drop forgets the listener.
func (x *Listening) Drop() {
	x.broker.mu.Lock()
	defer x.broker.mu.Unlock()
	x.broker.remove(x.id, x.l)
}

// Connect waits for the listener's end of a connection of a user to it. The caller joins its own end
// by [Join], and then calls done.
func (b *Broker) Connect(ctx context.Context, listener ID, user string) (end net.Conn, done func(), err error) {
	b.mu.Lock()
	l := b.listeners[listener]
	if l == nil || b.open >= maxConnections || b.openOf[user] >= maxConnectionsOfUser {
		defer b.mu.Unlock()
		if l == nil {
			return nil, nil, ErrNoListener
		}
		return nil, nil, fmt.Errorf("%w: %s has %d connections here, %d exist in all (limits %d and %d)", ErrTooMany, user, b.openOf[user], b.open, maxConnectionsOfUser, maxConnections)
	}
	id, x := NewID(), &joining{at: l, came: make(chan net.Conn, 1)}
	b.open++
	b.openOf[user]++
	b.waiting[id] = x
	b.mu.Unlock()
	done = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.open--
		if b.openOf[user]--; b.openOf[user] == 0 {
			delete(b.openOf, user)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	select {
	case l.announce <- id:
	case <-l.gone:
	case <-ctx.Done():
	}
	select {
	case end = <-x.came:
	case <-l.gone:
	case <-ctx.Done():
	}
	b.mu.Lock()
	delete(b.waiting, id)
	b.mu.Unlock()
	if end == nil {
		select { // it may have come meanwhile
		case end = <-x.came:
		default:
			done()
			return nil, nil, ErrNoListener
		}
	}
	return end, done, nil
}

// Waits reports whether a connection waits for its listener's end, of a user.
func (b *Broker) Waits(connection ID, user string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.waiting[connection]; x == nil || x.at.user != user {
		return ErrNoListener
	}
	return nil
}

// Accept hands over the listener's end of a connection. It closes one that is no longer waited for.
func (b *Broker) Accept(connection ID, end net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.waiting[connection]
	if x == nil {
		end.Close()
		return
	}
	delete(b.waiting, connection)
	x.came <- end
}

// Join copies bytes between two connections until both directions or ctx have ended, and closes both.
func Join(ctx context.Context, one, other net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		one.Close()
		other.Close()
	})
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		copyAll(one, other)
	}()
	copyAll(other, one)
	<-ended
	one.Close()
	other.Close()
}

// copyAll copies from one connection to the other. It passes on the end of the data; after an error, or
// where that is not possible, it closes both.
func copyAll(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, able := to.(interface{ CloseWrite() error })
	if err == nil && able && half.CloseWrite() == nil {
		return
	}
	to.Close()
	from.Close()
}
