package auth

import (
	"context"
	"sync"
	"time"
)

// Source provides tokens to a program that makes many calls: it fetches a new one when half the
// life of the last is over. Safe for concurrent use; callers share one fetch.
type Source struct {
	socket string
	mu     sync.Mutex
	token  string
	fresh  time.Time // until when token is used
}

// NewSource returns a source that asks the gauthd behind socket, on first use.
func NewSource(socket string) *Source { return &Source{socket: socket} }

// Token returns a token that has at least half its life left, or FetchToken's error.
func (s *Source) Token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.fresh) {
		return s.token, nil
	}
	token, err := FetchToken(ctx, s.socket)
	if err != nil {
		return "", err
	}
	s.token, s.fresh = token, now.Add(TokenLife/2)
	return token, nil
}
