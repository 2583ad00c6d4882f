package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/greylag/greylag/internal/metrics"
)

func TestHealth(t *testing.T) {
	disk := ""
	mux := http.NewServeMux()
	metrics.Health(mux, func() []metrics.Check {
		return []metrics.Check{{Name: "leader"}, metrics.Failed("disk", disk != "", "%s", disk)}
	})
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		disk, path string
		status     int
		want       string
	}{
		{"", "/livez", 200, "ok\n"}, {"full", "/livez", 200, "ok\n"},
		{"", "/readyz", 200, "ok\n"}, {"", "/readyz?verbose", 200, "[+] leader\n[+] disk\nok\n"},
		{"full", "/readyz", 503, "[-] disk: full\n"}, {"full", "/readyz?verbose", 503, "[+] leader\n[-] disk: full\n"},
	} {
		disk = c.disk
		if status, body := get(c.path); status != c.status || body != c.want {
			t.Errorf("%s with disk %q: %d %q, want %d %q", c.path, c.disk, status, body, c.status, c.want)
		}
	}
}

// slow counts its collections, and each takes until end is closed.
type slow struct {
	began, end chan struct{}
	count      int
}

func (s *slow) Describe(chan<- *prometheus.Desc) {}
func (s *slow) Collect(chan<- prometheus.Metric) {
	if s.count++; s.count == 1 {
		close(s.began)
	}
	<-s.end
}

// TestScrapesShare: scrapes within a second collect once.
func TestScrapesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{began: make(chan struct{}), end: make(chan struct{})}
		r := metrics.NewFileRegistry()
		r.MustRegister(s)
		handler := r.Handler()
		var scrapes sync.WaitGroup
		scrape := func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if w.Code != http.StatusOK {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		}
		scrapes.Go(scrape)
		<-s.began
		for range 3 {
			scrapes.Go(scrape)
		}
		synctest.Wait()
		close(s.end)
		scrapes.Wait()
		for _, c := range []struct {
			pause time.Duration
			want  int
		}{{0, 1}, {500 * time.Millisecond, 1}, {600 * time.Millisecond, 2}} {
			time.Sleep(c.pause)
			if scrape(); s.count != c.want {
				t.Errorf("%d collections after %s, want %d", s.count, c.pause, c.want)
			}
		}
	})
}
