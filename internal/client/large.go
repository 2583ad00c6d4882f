package client

import (
	"context"
	"sync"
)

// largePlaces bounds the large requests from inside jobs that a node holds: maxLarge in all and one of
// each user, whose slow requests wait for each other and not the others' for them.
type largePlaces struct {
	all   chan struct{} // holds a value for each
	mu    sync.Mutex
	users map[uint32]*largePlace
}

// largePlace is the place of one user.
type largePlace struct {
	taken chan struct{} // holds a value while it is
	uses  int           // requests that have it or wait for it
}

// take waits for a place, which is free again once release was called. release may be called twice.
func (p *largePlaces) take(ctx context.Context, uid uint32) (release func(), err error) {
	mine := p.enter(uid)
	for _, queue := range []chan struct{}{mine.taken, p.all} {
		select {
		case queue <- struct{}{}:
		case <-ctx.Done():
			if queue == p.all {
				<-mine.taken
			}
			p.leave(uid)
			return nil, ctx.Err()
		}
	}
	return sync.OnceFunc(func() {
		<-p.all
		<-mine.taken
		p.leave(uid)
	}), nil
}

// enter returns the place of a user.
func (p *largePlaces) enter(uid uint32) *largePlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.users[uid]
	if mine == nil {
		mine = &largePlace{taken: make(chan struct{}, 1)}
		p.users[uid] = mine
	}
	mine.uses++
	return mine
}

// leave forgets the place of a user when no request needs it.
func (p *largePlaces) leave(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users[uid].uses--; p.users[uid].uses == 0 {
		delete(p.users, uid)
	}
}
