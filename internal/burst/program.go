package burst

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/runas"
	"github.com/greylag/greylag/pkg/cluster"
)

// Config is the configuration of a provider program.
type Config struct {
	Program     string // absolute path
	Args        []string
	User        string        // name or uid that it runs as; "": the user of this process
	Environment []string      // NAME=VALUE, in addition to PATH and LANG
	Timeout     time.Duration // of one call
	ClusterID   string
	// Strict refuses an answer with an odd field that could be ignored, for tests of programs.
	Strict bool
	Log    *slog.Logger
}

// Program is a provider that runs a program for each call. Use [New]. It is safe for concurrent use.
type Program struct {
	cfg Config
	now func() time.Time

	mu     sync.Mutex
	logged map[string]bool // what logOnce has written
}

var _ Provider = (*Program)(nil)

// New returns a provider that runs a program.
func New(cfg Config) *Program {
	if cfg.User != "" {
		runas.DropAmbient(cfg.Log)
	}
	return &Program{cfg: cfg, now: time.Now, logged: map[string]bool{}}
}

// maxRemembered bounds what logOnce remembers.
const maxRemembered = 1000

// logOnce logs what is odd about an offer or an instance, unless it has logged that of the same field before. why begins
// with the name of the field.
func (p *Program) logOnce(text, kind, name, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	field, _, _ := strings.Cut(why, " ")
	what := kind + " " + name + " " + field
	if p.logged[what] {
		return
	}
	if len(p.logged) >= maxRemembered {
		clear(p.logged)
	}
	p.logged[what] = true
	p.cfg.Log.Warn(text, kind, name, "why", why)
}

// Offers implements [Provider].
func (p *Program) Offers(ctx context.Context) (Prices, error) {
	a, err := p.call(ctx, CallOffers, &Question{}, p.cfg.Log)
	if err != nil {
		return Prices{}, err
	}
	prices, bad := p.prices(a)
	return prices, of(CallOffers, bad)
}

// Launch implements [Provider].
func (p *Program) Launch(ctx context.Context, l *LaunchRequest) ([]cluster.Instance, error) {
	lifetime := int64(l.Lifetime / time.Second)
	q := LaunchQuestion{
		ClientToken: l.ClientToken, Launch: uint64(l.Launch), Try: l.Try, Nodes: l.Nodes,
		Offer: l.Offer.Name, Type: l.Offer.Type, Region: l.Offer.Region, Market: l.Offer.Market.String(),
		MaxPrice: cluster.FormatMoney(l.MaxPrice), LifetimeSeconds: lifetime,
		UserData: UserData{
			Cluster: p.cfg.ClusterID, Launch: uint64(l.Launch), Controllers: l.Controllers, Token: l.JoinToken, LifetimeSeconds: lifetime,
		},
	}
	log := p.cfg.Log.With("launch", uint64(l.Launch), "try", l.Try)
	a, err := p.call(ctx, CallLaunch, &Question{Launch: &q}, log)
	if err != nil {
		return nil, err
	}
	list, bad := p.launched(a, l)
	return list, of(CallLaunch, bad)
}

// List implements [Provider].
func (p *Program) List(ctx context.Context) ([]cluster.Instance, error) {
	a, err := p.call(ctx, CallList, &Question{}, p.cfg.Log)
	if err != nil {
		return nil, err
	}
	list, bad := p.instances(a)
	return list, of(CallList, bad)
}

// Terminate implements [Provider].
func (p *Program) Terminate(ctx context.Context, ids []string) ([]cluster.Instance, error) {
	a, err := p.call(ctx, CallTerminate, &Question{Instances: ids}, p.cfg.Log.With("instances", len(ids)))
	if err != nil {
		return nil, err
	}
	list, bad := p.instances(a)
	if bad == nil {
		for _, x := range list {
			if !slices.Contains(ids, x.ID) {
				bad = fail(ErrForeign, "instance %s was not in the request", x.ID)
			}
		}
	}
	return list, of(CallTerminate, bad)
}

// Console implements [Provider].
func (p *Program) Console(ctx context.Context, id string) (string, error) {
	a, err := p.call(ctx, CallConsole, &Question{Instances: []string{id}}, p.cfg.Log.With("instance", id))
	if err != nil {
		return "", err
	}
	return consoleEnd(a.Console), nil
}

// Validate implements [Provider].
func (p *Program) Validate(ctx context.Context) (problems []string, err error) {
	a, err := p.call(ctx, CallValidate, &Question{}, p.cfg.Log)
	if err != nil {
		return nil, err
	}
	for _, text := range a.Problems {
		problems = append(problems, line(text))
	}
	return problems, nil
}

// call runs the program and reads its answer.
func (p *Program) call(ctx context.Context, call string, q *Question, log *slog.Logger) (*Answer, error) {
	q.Version, q.Cluster = Version, p.cfg.ClusterID
	return p.answer(ctx, call, q, nil, log)
}

// Probe calls the program with any input, for tests of programs. It returns why the call failed.
func (p *Program) Probe(ctx context.Context, call string, input []byte) error {
	_, err := p.answer(ctx, call, &Question{}, input, p.cfg.Log)
	return err
}

func (p *Program) answer(ctx context.Context, call string, q *Question, raw []byte, log *slog.Logger) (*Answer, error) {
	output, status, bad := p.run(ctx, call, q, raw, log.With("call", call))
	if err := context.Cause(ctx); err != nil && bad != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	if bad != nil {
		return nil, of(call, bad)
	}
	a, bad := readAnswer(output, status)
	return a, of(call, bad)
}

// of completes an error of a call.
func of(call string, e *Error) error {
	if e == nil {
		return nil
	}
	e.Call = call
	return e
}
