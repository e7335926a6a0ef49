# A pull worker in Ruby's standard library: QUVATLH_URL, QUVATLH_TOKEN, and the queues as arguments.
require "json"
require "net/http"
require "socket"

URL = ENV.fetch("QUVATLH_URL").chomp("/")
NAME = ENV.fetch("WORKER", "ruby-#{Socket.gethostname}")
LEASE = Float(ENV.fetch("LEASE", "30"))
HEADERS = { "Authorization" => "Bearer #{ENV.fetch('QUVATLH_TOKEN')}", "Content-Type" => "application/json" }.freeze

def ask(verb, body)
  loop do # what was said may be said again; but not what is wrong
    answer = Net::HTTP.post(URI("#{URL}/v1/work/#{verb}"), JSON.generate(body), HEADERS) rescue nil
    return JSON.parse(answer.body) if answer.is_a?(Net::HTTPSuccess)
    abort(answer.body) if answer.is_a?(Net::HTTPClientError) && answer.code != "429"

    sleep 1
  end
end

def work(payload) # yours: what it gives is the task's result
  { sum: payload.sum }
end

loop do
  ask("claim", { worker: NAME, queues: ARGV.empty? ? ["*"] : ARGV, lease: LEASE })["actions"].each do |action|
    owned = action.slice("action", "token")
    working = Thread.new do
      ["finish", { result: work(action["payload"]) }]
    rescue StandardError => e
      ["fail", { error: e.message }]
    end
    until working.join(LEASE / 3)
      working.kill if ask("renew", owned)["results"][0]["code"] # gone, or another's
    end
    verb, said = working.value || ["fail", { error: "it was to end" }]
    ask(verb, owned.merge(said))
  end
end
