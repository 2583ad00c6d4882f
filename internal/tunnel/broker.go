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

// The limits of one controller.
const (
	maxListeners   = 4096
	maxOfUser      = 256 // listeners of one user
	maxConnections = 1100
	joinTime       = 10 * time.Second // for the listener's end to arrive
	announceTime   = 5 * time.Second
)

// ErrTooMany refuses a listener or a connection over the limit.
var ErrTooMany = errors.New("too many tunnels")

// Broker joins the connections of both ends at one controller. Safe for concurrent use.
type Broker struct {
	mu        sync.Mutex
	listeners map[ID]*listening
	waiting   map[ID]*joining
	ofUser    map[string]int
}

// listening is the state of one listener.
type listening struct {
	user     string
	announce chan ID
	gone     chan struct{} // closed on removal
	open     int           // connections
}

// joining is a connection that waits for the listener's end.
type joining struct {
	listener *listening
	arrived  chan net.Conn
}

// NewBroker returns a broker.
func NewBroker() *Broker {
	return &Broker{listeners: map[ID]*listening{}, waiting: map[ID]*joining{}, ofUser: map[string]int{}}
}

// Listening is a registered listener.
type Listening struct {
	broker *Broker
	id     ID
	l      *listening
}

// Listen registers a listener of a user. It replaces the user's earlier listener with that ID, whose
// connection may be dead. The caller must then call Serve or Drop.
func (b *Broker) Listen(id ID, user string) (*Listening, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.listeners[id]; old != nil {
		if old.user != user {
			return nil, fmt.Errorf("%w: the ID is in use", ErrTooMany)
		}
		b.remove(id, old)
	}
	if len(b.listeners) >= maxListeners || b.ofUser[user] >= maxOfUser {
		return nil, fmt.Errorf("%w: user %s has %d listeners (limit %d), this controller has %d (limit %d)", ErrTooMany, user, b.ofUser[user], maxOfUser, len(b.listeners), maxListeners)
	}
	l := &listening{user: user, announce: make(chan ID), gone: make(chan struct{})}
	b.listeners[id] = l
	b.ofUser[user]++
	return &Listening{b, id, l}, nil
}

// remove deletes a listener. The caller holds b.mu.
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

// Serve announces connections to the listener until its connection closes or ctx ends.
func (x *Listening) Serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer x.Drop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, conn) // until it closes; a listener sends nothing
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

// Drop removes the listener.
func (x *Listening) Drop() {
	x.broker.mu.Lock()
	defer x.broker.mu.Unlock()
	x.broker.remove(x.id, x.l)
}

// Connect announces a connection to a listener and waits for the listener's end. The caller passes it
// and its own end to [Join], and then calls done.
func (b *Broker) Connect(ctx context.Context, listener ID) (end net.Conn, done func(), err error) {
	b.mu.Lock()
	l := b.listeners[listener]
	if l == nil || l.open >= maxConnections {
		b.mu.Unlock()
		if l == nil {
			return nil, nil, ErrNoListener
		}
		return nil, nil, fmt.Errorf("%w: the listener has %d connections, the limit", ErrTooMany, maxConnections)
	}
	id, x := NewID(), &joining{listener: l, arrived: make(chan net.Conn, 1)}
	l.open++
	b.waiting[id] = x
	b.mu.Unlock()
	done = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		l.open--
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	select {
	case l.announce <- id:
	case <-l.gone:
	case <-ctx.Done():
	}
	select {
	case end = <-x.arrived:
	case <-l.gone:
	case <-ctx.Done():
	}
	b.mu.Lock()
	delete(b.waiting, id)
	b.mu.Unlock()
	if end == nil {
		select { // it may have arrived in the meantime
		case end = <-x.arrived:
		default:
			done()
			return nil, nil, ErrNoListener
		}
	}
	return end, done, nil
}

// Waits returns an error unless a connection waits for the end of a listener of the user.
func (b *Broker) Waits(connection ID, user string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.waiting[connection]; x == nil || x.listener.user != user {
		return ErrNoListener
	}
	return nil
}

// Accept passes the listener's end of a connection to Connect. It closes end if Connect no longer waits.
func (b *Broker) Accept(connection ID, end net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.waiting[connection]
	if x == nil {
		end.Close()
		return
	}
	delete(b.waiting, connection)
	x.arrived <- end
}

// Join copies bytes between two connections until one closes or ctx ends. It then closes both.
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
}

// copyAll copies from one connection to the other until an error or EOF, and closes both.
func copyAll(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either may close at any time
	to.Close()
	from.Close()
}
