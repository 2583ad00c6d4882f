package burst

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

const page = "../../docs/burst-provider.md"

// TestObjectsOfThePage: the examples of the contract's page are questions and answers that are accepted.
func TestObjectsOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) != 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	var q Question
	if err := decode([]byte(blocks[0]), &q); err != nil || q.Launch == nil {
		t.Fatal(err)
	}
	if l := q.Launch; l.UserData.Launch != l.Launch || l.UserData.LifetimeSeconds != l.LifetimeSeconds || l.UserData.Cluster != q.Cluster {
		t.Errorf("the question contradicts itself: %+v", l)
	}
	p := New(Config{ClusterID: q.Cluster})
	p.now = func() time.Time { return q.Deadline }
	launch := launchTest(q.Launch.Nodes)
	launch.Launch, launch.Try = 41, q.Launch.Try
	if a, bad := readAnswer([]byte(blocks[1]), ExitOK); bad != nil {
		t.Error(bad)
	} else if list, bad := p.launched(a, launch); bad != nil || len(list) != 2 {
		t.Error(list, bad)
	}
	if a, bad := readAnswer([]byte(blocks[2]), ExitOK); bad != nil {
		t.Error(bad)
	} else if prices, bad := p.prices(a); bad != nil || len(prices.Offers) != 1 || prices.Offers[0].Name != q.Launch.Offer {
		t.Error(prices, bad)
	}
	if _, bad := readAnswer([]byte(blocks[3]), ExitPermanent); bad == nil || !errors.Is(bad, ErrCapacity) {
		t.Error(bad)
	}
}

// TestFieldsOfThePage: every field and every kind of error is described.
func TestFieldsOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := json.Marshal([]any{
		Question{Launch: &LaunchQuestion{}, Instances: []string{"i"}},
		Answer{Error: &Failure{}, Currency: "c", Console: "c", Problems: []string{"p"}, Instances: []Instance{{Type: "t", Address: "a", Price: "p", ReclaimAt: time.Unix(1, 0), Interrupted: true, Cost: "c"}},
			Offers: []Offer{{GPUType: "t", GPUMemoryBytes: 1, InterruptionPPM: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{StatePending, StateRunning, StateEnding, StateTerminated, CallConsole, CallLaunch, CallList, CallOffers, CallTerminate, CallValidate}
	for kind := range failureKinds {
		names = append(names, kind)
	}
	for _, m := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(string(whole), -1) {
		names = append(names, m[1])
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("%s does not describe %s", page, name)
		}
	}
}
