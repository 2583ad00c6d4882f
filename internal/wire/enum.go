package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// vocabulary maps the values of each enum of the API, by number, to the words of users.
var vocabulary = map[protoreflect.Name][]string{
	"AccountAction":     {"", "add", "modify", "delete"},
	"AuditKind":         append([]string{""}, command.AuditKinds()...),
	"BucketClass":       {"", "promo", "grant", "refund", "purchase"},
	"BudgetWindow":      {"", "day", "month"},
	"BurstMode":         words(cluster.BurstNever, cluster.BurstOnly),
	"CertificateOrigin": words(command.CertificateJoined, command.CertificateSeen),
	"CheckpointAction":  words(command.VerifyCheckpoint, command.DropCheckpoint),
	"CheckpointState":   words(cluster.CheckpointWritten, cluster.CheckpointDamaged),
	"ConditionEffect":   words(cluster.Notice, cluster.Drains),
	"Connect":           words(cluster.ConnectAny, cluster.ConnectLeaf),
	"CronAction":        {"", "hold", "release", "remove"},
	"CronOverlap":       {"", "skip", "queue"},
	"DependencyKind":    words(cluster.After, cluster.Singleton),
	"DisagreementKind":  {"", "unplaced", "unknown", "split", "block"},
	"EntryKind":         words(accounting.Granted, accounting.Taken),
	"ErrorCode":         words(connect.CodeCanceled, connect.CodeUnauthenticated),
	"Hold":              {"", "user", "admin", "credits"},
	"HostRole":          {"", "node", "controller", "auth"},
	"JobAction":         {"", "set", "hold", "release", "requeue", "set-admin-comment", "requeue-hold"},
	"JobState":          words(cluster.Pending, cluster.OutOfMemory),
	"Journal":           {"", "credits", "audit"},
	"LeaseState":        words(cluster.LeasePlanned, cluster.LeaseGone),
	"MailType":          mailTypes(),
	"Market":            words(cluster.AnyMarket, cluster.OnDemand),
	"MemorySource":      words(cluster.MemoryOfPartition, cluster.MemoryAll),
	"NodeAction":        {"", "drain", "resume", "remove", "reboot", "reboot-when-idle", "cancel-reboot", "fenced"},
	"NodeState":         append(words(cluster.NodeIdle, cluster.NodeDown), "RESERVED"),
	"Reason":            words(cluster.ReasonNone, cluster.ReasonStageOut),
	"Repair":            words(cluster.RepairReset, cluster.RepairReboot),
	"ReservationState":  {"", "INACTIVE", "ACTIVE", "OVER"},
	"Role":              {"", "user", "operator", "admin"},
	"RotationPhase":     {"", "renewing", "finishing", "done"},
	"RotationStep":      {"", "begin", "finish", "cancel"},
	"StopReason":        {"", "cancelled", "CREDITS", "TIME LIMIT", "DEADLINE", "PREEMPTION", "NODE FAILURE", "JOB REQUEUE", "RESIZE", "INACTIVE LIMIT"},
	"TaskCause":         words(cluster.Exited, cluster.CredentialsRefused),
	"TaskPhase":         {"", "wanted", "started", "ended", "clean"},
}

func mailTypes() []string {
	list := []string{""}
	for _, t := range cluster.MailTypes(math.MaxUint16).Each() {
		list = append(list, t.String())
	}
	return list
}

// numbers is the inverse of vocabulary.
var numbers = func() map[protoreflect.Name]map[string]int32 {
	all := make(map[protoreflect.Name]map[string]int32, len(vocabulary))
	for enum, words := range vocabulary {
		all[enum] = make(map[string]int32, len(words))
		for n, word := range words {
			all[enum][word] = int32(n)
		}
	}
	return all
}()

// words returns the words of the values from first to last, after that of the unspecified value.
func words[T interface {
	~uint8 | ~uint32
	fmt.Stringer
}](first, last T) []string {
	list := []string{""}
	for v := first; v <= last; v++ {
		list = append(list, v.String())
	}
	return list
}

// Word returns the word of an enum value. It is empty for the unspecified value, and the number for
// a value that a newer version added.
func Word[E protoreflect.Enum](e E) string {
	words, n := vocabulary[e.Descriptor().Name()], int(e.Number())
	if n < 0 || n >= len(words) {
		return strconv.Itoa(n)
	}
	return words[n]
}

// Enum returns the enum value of a word. It is the unspecified value for a word that is not known.
func Enum[E interface {
	~int32
	protoreflect.Enum
}](word string) E {
	var e E
	return E(numbers[e.Descriptor().Name()][word])
}

// AuditKind splits the kind of an audit entry: "signal 9" is the kind of signals and the number 9.
// The kind is unspecified for a word that is not known.
func AuditKind(text string) (kind greylagv1.AuditKind, signal int32) {
	word, number, _ := strings.Cut(text, " ")
	if n, err := strconv.ParseInt(number, 10, 32); err == nil {
		text, signal = word, int32(n)
	}
	return Enum[greylagv1.AuditKind](text), signal
}

// AuditKindWord joins what AuditKind split.
func AuditKindWord(kind greylagv1.AuditKind, signal int32) string {
	if signal != 0 {
		return fmt.Sprintf("%s %d", Word(kind), signal)
	}
	return Word(kind)
}

// Unset returns the refusal of a request that does not set a field that it must set.
func Unset(field string, e protoreflect.Enum) error {
	var names []string
	for i := 1; i < e.Descriptor().Values().Len(); i++ {
		names = append(names, string(e.Descriptor().Values().Get(i).Name()))
	}
	return refuse("%s is not set: want %s", field, strings.Join(names, ", "))
}

// enumFields holds, by the name of a message, the fields that are enums or contain one.
var enumFields sync.Map

func enumFieldsOf(d protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if list, ok := enumFields.Load(d.FullName()); ok {
		return list.([]protoreflect.FieldDescriptor)
	}
	var list []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Enum() != nil || f.Message() != nil && len(enumFieldsOf(f.Message())) > 0 {
			list = append(list, f)
		}
	}
	enumFields.Store(d.FullName(), list)
	return list
}

// CheckEnums refuses a request with a number that is no value of its enum, and names the field.
// O(values).
func CheckEnums(m protoreflect.Message) error { return checkEnums("", m) }

func checkEnums(path string, m protoreflect.Message) error {
	for _, f := range enumFieldsOf(m.Descriptor()) {
		if !m.Has(f) {
			continue
		}
		at := path + string(f.Name())
		if !f.IsList() {
			if err := checkEnum(at, f, m.Get(f)); err != nil {
				return err
			}
			continue
		}
		for i, list := 0, m.Get(f).List(); i < list.Len(); i++ {
			if err := checkEnum(fmt.Sprintf("%s[%d]", at, i), f, list.Get(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkEnum(at string, f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	if f.Enum() == nil {
		return checkEnums(at+".", v.Message())
	}
	if f.Enum().Values().ByNumber(v.Enum()) == nil {
		return refuse("%s: %d is not a %s", at, v.Enum(), f.Enum().Name())
	}
	return nil
}
