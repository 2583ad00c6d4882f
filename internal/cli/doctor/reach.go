package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/pki"
)

const (
	// reachTime is how long a controller may take to answer.
	reachTime = 5 * time.Second
	// mostSkew is how much two clocks may differ: tokens live 60 s, and a leader whose
	// clock is 5 s from its peers' gives up leadership. The date in an answer is in
	// whole seconds.
	mostSkew = 2 * time.Second
)

// answer is what became of asking one controller for anything at all.
type answer struct {
	address string
	err     error
	skew    time.Duration // its clock is so far ahead of this host's; 0 within what can be told
}

// reach asks every controller at once, by the way that all programs take: TLS under
// the cluster's CA. Whatever is answered will do.
func reach(ctx context.Context, addresses []string, tls *tls.Config) []answer {
	all := make([]answer, len(addresses))
	client := &http.Client{Timeout: reachTime, Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() { all[i] = ask(ctx, client, address) })
	}
	asked.Wait()
	return all
}

func ask(ctx context.Context, client *http.Client, address string) answer {
	a := answer{address: address}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/", nil)
	if err != nil {
		a.err = err
		return a
	}
	before := time.Now()
	response, err := client.Do(request)
	after := time.Now()
	if err != nil {
		a.err = err
		return a
	}
	response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	switch {
	case err != nil: // it says no time
	case date.After(after.Add(mostSkew)):
		a.skew = date.Sub(after)
	case date.Add(time.Second).Before(before.Add(-mostSkew)):
		a.skew = date.Sub(before)
	}
	return a
}

// controllers checks that this host reaches them, and that its clock is theirs.
func (x *exam) controllers(ctx context.Context, addresses []string, tls *tls.Config) (reached bool) {
	var silent, ahead, behind []string
	var why error
	var worst time.Duration
	for _, a := range reach(ctx, addresses, tls) {
		switch {
		case a.err != nil:
			silent, why = append(silent, a.address), a.err
		case a.skew > 0:
			ahead, worst = append(ahead, a.address), max(worst, a.skew)
		case a.skew < 0:
			behind, worst = append(behind, a.address), max(worst, -a.skew)
		}
	}
	const advice = "is gctld running there, and is the way to its port open? controllers names them in this host's file"
	switch {
	case errors.Is(why, pki.ErrUntrusted) || errors.Is(why, pki.ErrWrongRole):
		x.note(Fault, "controllers", "what answers there is no controller of this cluster: mend controllers in the file, or join this host again", "%s: %s", words(silent), plain(why))
	case len(silent) == len(addresses):
		x.note(Fault, "controllers", advice, "none answers: %s: %s", words(silent), plain(why))
	case len(silent) > 0:
		x.note(Warning, "controllers", advice, "no answer from %s: %s", words(silent), plain(why))
	default:
		x.good("controllers", "every configured or learned address answers: %d", len(addresses))
	}
	if len(ahead)+len(behind) > 0 {
		x.note(Fault, "clock", "let a time service keep the clocks (chrony, systemd-timesyncd): timedatectl set-ntp true", "this host's clock differs from that of %s by %s", words(append(ahead, behind...)), worst.Round(time.Second))
	} else if len(silent) < len(addresses) {
		x.good("clock", "that of the controllers")
	}
	return len(silent) < len(addresses)
}

// plain is what went wrong on the way, without the address and the layers that
// net/http names before it.
func plain(err error) error {
	for {
		_, layer := any(err).(interface{ Timeout() bool }) // this layer alone: of package net, or above it
		inner := errors.Unwrap(err)
		if !layer || inner == nil {
			return err
		}
		err = inner
	}
}
