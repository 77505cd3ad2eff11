package history

import "encoding/json"

// Standings is the name of the nemesis's event about what stands for locks on the
// servers. It is written once, when a story or a workload is over and before the
// sessions are ended, and is no fault.
const Standings = "standings"

// A Standing is a node or a key on the servers that stands for a lock, or in the
// queue for it.
type Standing struct {
	Name  string `json:"name"`            // of the node or key
	Token uint64 `json:"token,omitempty"` // its czxid or create revision, where it has one
	Owner string `json:"owner,omitempty"` // its session, lease or time to live, as the server says
}

// StandingsOf reads the value of the event: by lock, the first in the queue first.
func StandingsOf(o *Op) map[string][]Standing {
	var v struct {
		Keys map[string][]Standing `json:"keys"`
	}
	if o.Process != Nemesis || o.F != Standings || json.Unmarshal(o.Value, &v) != nil {
		return nil
	}
	return v.Keys
}

// StandingsEvent is the event that says it.
func StandingsEvent(keys map[string][]Standing) (Op, error) {
	b, err := json.Marshal(map[string]any{"keys": keys})
	return Op{Process: Nemesis, Type: Info, F: Standings, Value: b}, err
}
