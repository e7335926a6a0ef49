# frozen_string_literal: true

# A warm process for Ruby: loads an application once and performs its jobs by class name and arguments (PROTOCOL.md).
#
#   bin/rails runner quvatlh_warm.rb          the application is loaded by Rails
#   ruby quvatlh_warm.rb jobs.rb more.rb      these files are
#
# `ReportJob` is performed as an Active Job, or as any class with a method `perform`; `Report.build` calls that method of the
# class or module. A job may ask Quvatlh.current whose it is, and raise Quvatlh::Retry or PermanentFailure. PROTOCOL.md says
# what becomes of retry_on, discard_on and the like.

require "json"

module Quvatlh
  VERSION = 1

  # Raised by a job: it did not work out this time; again after so many seconds, as long as attempts are left.
  class Retry < StandardError
    attr_reader :after

    def initialize(text = "not this time", after: nil)
      super(text)
      @after = after
    end
  end

  # Raised by a job: trying again is of no use.
  class PermanentFailure < StandardError; end

  # Raised inside a job that is to end. Not a StandardError, so that a plain `rescue` does not stop it.
  class Cancelled < Exception; end # rubocop:disable Lint/InheritException

  # What is asked for does not exist, or not so.
  class Unfit < StandardError; end

  # The running job.
  class Context
    attr_reader :task, :action, :attempt, :token, :worker
    attr_writer :cancelled

    def initialize(message, channel)
      @task, @action, @attempt, @token, @worker = message.values_at("task", "id", "attempt", "token", "worker")
      @payload = message["payload"]
      @channel = channel
      @cancelled = false
      @told_at = 0.0
    end

    def payload
      @payload && File.binread(@payload)
    end

    def cancelled?
      @cancelled
    end

    # A place where the job may end.
    def heartbeat
      raise Cancelled if @cancelled
    end

    # Of many within a tenth of a second, one is told.
    def progress(percent = nil, text = "")
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if now - @told_at < 0.1 && percent != 100

      @told_at = now
      message = { type: "progress", id: @action, text: text.to_s[0, 1000] }
      message[:percent] = percent.to_i.clamp(0, 100) if percent
      @channel.say(message)
    end

    def log(*words)
      @channel.say(type: "output", id: @action, stream: "stderr", text: "#{words.join(' ')}\n")
    end
  end

  def self.current
    Thread.current.thread_variable_get(:quvatlh) || Warm.running || raise("no job runs here")
  end

  # Lines of JSON, each written at once.
  class Channel
    def initialize(io)
      @io = io
      @io.sync = true
      @lock = Mutex.new
    end

    def say(message)
      line = JSON.generate(message)
      @lock.synchronize { @io.write("#{line}\n") }
    end
  end

  # Standard output as Ruby code sees it: of the job that writes. Without one it is standard error's.
  class Stream
    def initialize(channel)
      @channel = channel
    end

    def write(*parts)
      text = parts.map { |part| part.to_s.b }.join # as bytes, since parts of two encodings do not join
      context = Warm.running
      if context
        clean = text.force_encoding(Encoding::UTF_8).scrub
        @channel.say(type: "output", id: context.action, stream: "stdout", text: clean)
      else
        $stderr.write(text)
      end
      text.bytesize
    end

    def syswrite(text)
      write(text)
    end

    def write_nonblock(text, **)
      write(text)
    end

    def putc(given)
      write(given.is_a?(String) ? given[0] : (given.to_i & 0xff).chr)
      given
    end

    def <<(text)
      write(text)
      self
    end

    def print(*words)
      write(*words)
      nil
    end

    def puts(*lines)
      write(lines.flatten.then { |all| all.empty? ? "\n" : all.map { |line| line.to_s.end_with?("\n") ? line : "#{line}\n" }.join })
      nil
    end

    def printf(*given)
      write(format(*given))
      nil
    end

    def flush
      self
    end

    def sync
      true
    end

    def sync=(value); end

    def fsync
      0
    end
    alias fdatasync fsync

    def tty?
      false
    end
    alias isatty tty?

    def binmode
      self
    end

    def set_encoding(*, **)
      self
    end

    def external_encoding
      Encoding::UTF_8
    end

    def fileno
      1
    end
    alias to_i fileno

    # A logger that is closed closes its device, and the next job has the same.
    def close; end
    alias close_write close

    def closed?
      false
    end
  end

  # An Active Job while it is performed as a task.
  module Attempt
    attr_accessor :quvatlh

    # What retry_on calls. Enqueued, the job would run apart from its task; so the task is tried again.
    def retry_job(options = {})
      told = { adapter: self.class.queue_adapter, job: self, error: options[:error], wait: options[:wait] }
      ActiveSupport::Notifications.instrument("enqueue_retry.active_job", told)
      quvatlh.again(options)
      self
    end

    def perform(*args)
      quvatlh.reached = true
      super
    end
    ruby2_keywords(:perform) if respond_to?(:ruby2_keywords, true)

    # What is said to the scheduler is not for `retry_on StandardError`.
    def rescue_with_handler(error)
      super unless error.is_a?(Retry) || error.is_a?(PermanentFailure)
    end
  end

  # How an attempt of an Active Job ended, which perform_now does not tell: it returns what was handled, and false for what
  # was halted. Active Job tells of the rest by its instrumentation.
  class Ending
    DEPTH_MAX = 60
    attr_reader :kind, :error, :after
    attr_writer :reached

    def self.listen
      @listen ||= { "discard" => :discarded, "retry_stopped" => :exhausted }.each do |event, kind|
        ActiveSupport::Notifications.subscribe("#{event}.active_job") do |_name, _from, _to, _id, told|
          job = told[:job]
          job.quvatlh.is(kind, told[:error]) if job.respond_to?(:quvatlh)
        end
      end
    end

    def initialize(job, context)
      self.class.listen
      @job = job.extend(Attempt)
      @job.quvatlh = self
      @job.job_id = @job.provider_job_id = context.task if context.task
      before = (context.attempt || 1) - 1
      @job.executions = before
      # Nobody knows what the attempts before have failed of: each retry_on counts them all.
      @job.exception_executions = Hash.new(before) if @job.respond_to?(:exception_executions=)
    end

    # As Active Job serializes them: a record by its GlobalID, and so on.
    def arguments=(given)
      @job.serialized_arguments = given
    end

    def is(kind, error)
      @kind, @error = kind, error
    end

    def again(options)
      @after = options[:wait_until] ? options[:wait_until].to_f - Time.now.to_f : options[:wait].to_f
      @after = 0.0 if @after.negative?
      is(:again, options[:error])
    end

    # What it returned; none that is no plain data, since Rails passes it over whatever it is.
    def value
      value = @job.perform_now
      @kind ||= :halted unless @reached || value.is_a?(Exception)
      value if plain?(value)
    end

    private

    def plain?(value, depth = 0)
      case value
      when nil, true, false, Numeric, String, Symbol, Time, Date then true
      when Array then depth < DEPTH_MAX && value.all? { |each| plain?(each, depth + 1) }
      when Hash then depth < DEPTH_MAX && value.all? { |key, each| plain?(key, DEPTH_MAX) && plain?(each, depth + 1) }
      else false
      end
    end
  end

  # The process: one thread listens, another performs, so that what runs can be told to end.
  class Warm
    class << self
      attr_accessor :running
    end

    def initialize
      @input = $stdin.dup # closed in whatever a job starts, which must not read what is said to this process
      $stdin.reopen(File::NULL)
      @channel = Channel.new($stdout.dup)
      $stdout.reopen($stderr) # what is no Ruby code must not write into the protocol
      $stdout = Stream.new(@channel)
      $stderr.sync = true
      @calls = Queue.new
      @unwanted = {}
      @lock = Mutex.new
    end

    def serve
      @performer = Thread.new { perform_all }
      @performer.report_on_exception = false
      @channel.say(type: "ready", version: VERSION)
      without_lock { @input.each_line { |line| heard(JSON.parse(line)) } }
      exit!(0) # nobody is there any more
    end

    private

    # `rails runner` of 7.1 and newer holds the executor around this file; while one is held, no changed code is loaded.
    def without_lock
      held = defined?(::Rails.application) && ::Rails.application && ::Rails.application.executor.active?
      lock = ::ActiveSupport::Dependencies.interlock if held && ::ActiveSupport::Dependencies.respond_to?(:interlock)
      lock&.done_running
      yield
    ensure
      lock&.start_running
    end

    def heard(message)
      case message["type"]
      when "run" then @calls << message
      when "stop" then message["id"] ? stop(message["id"]) : @calls << nil
      end
    end

    def stop(id)
      @lock.synchronize do
        context = self.class.running
        if context&.action == id
          context.cancelled = true
          @performer.raise(Cancelled)
        else
          @unwanted[id] = true
        end
      end
    end

    def perform_all
      while (message = @calls.pop)
        perform(message)
      end
      Thread.main.raise(SystemExit) # with at_exit blocks, unlike the end of standard input
    rescue Exception => e # rubocop:disable Lint/RescueException
      warn(e.full_message(highlight: false))
      exit!(1)
    end

    # An interruption is let in only while the job itself runs: then it is the job's, and no other's.
    def perform(message)
      context = Context.new(message, @channel)
      answer = nil
      begin
        Thread.handle_interrupt(Cancelled => :never) do
          answer = answered(context, message)
          @lock.synchronize { self.class.running = nil }
        end
      rescue Cancelled
        nil # it came after the job's end
      end
      @channel.say(answer.merge(id: context.action))
    end

    def answered(context, message)
      began = Time.now
      wanted = @lock.synchronize do
        self.class.running = context
        !@unwanted.delete(context.action)
      end
      return { type: "error", stopped: true, text: "stopped" } unless wanted

      called(message, context).merge(began: (began.to_f * 1000).to_i, ms: (Time.now - began) * 1000)
    rescue Exception => e # rubocop:disable Lint/RescueException
      return { type: "error", stopped: true, text: "stopped" } if e.is_a?(Cancelled) && context.cancelled?

      failure(e).merge(began: (began.to_f * 1000).to_i)
    ensure
      $stderr.flush
    end

    # Looked up inside: what was there before may be code that has changed since. Interruptions are let in no further out.
    def called(message, context)
      ending = nil
      within do
        Thread.handle_interrupt(Cancelled => :immediate) do
          target, method = found(message["call"])
          ending = active_job?(target, method) ? ending_of(target, message, context) : nil
          ending ? performed(target, ending) : result(value_of(target, method, message))
        rescue Retry => e # no news for whom Rails tells of errors
          failure(e)
        end
      end
    rescue StandardError => e
      raise unless ending&.kind == :exhausted

      failure(e).merge(permanent: true)
    end

    def value_of(target, method, message)
      args, kwargs = arguments(message)
      method ||= "perform_now" if target.respond_to?(:perform_now)
      fitting(target, method) do
        method ? target.public_send(method, *args, **kwargs) : target.new.perform(*args, **kwargs)
      end
    end

    def arguments(message)
      [message["args"], message["kwargs"].transform_keys(&:to_sym)]
    end

    def active_job?(target, method)
      !method && defined?(::ActiveJob::Base) && target.is_a?(Class) && target <= ::ActiveJob::Base
    end

    def ending_of(target, message, context)
      args, kwargs = arguments(message)
      ending = Ending.new(target.new(*args, **kwargs), context)
      if JSON.generate([args, kwargs]).include?('"_aj_')
        named = kwargs.empty? ? [] : [kwargs.transform_keys(&:to_s).merge("_aj_ruby2_keywords" => kwargs.keys.map(&:to_s))]
        ending.arguments = args + named
      end
      ending
    end

    def performed(target, ending)
      value = fitting(target, nil) { ending.value }
      case ending.kind
      when :again
        error = ending.error || Retry.new("asked to be tried again")
        failure(error).merge(after: ending.after, permanent: false)
      when :discarded then failure(ending.error).merge(class: "Quvatlh::Discarded", text: in_short(ending.error), permanent: true)
      when :exhausted then failure(ending.error).merge(permanent: true)
      when :halted
        { type: "error", class: "Quvatlh::Halted", text: "a callback kept it from being performed", permanent: true }
      else
        said = result(value)
        said[:unfit] ? { type: "result" } : said
      end
    end

    def fitting(target, method)
      yield
    rescue ArgumentError => e
      raise unless of_the_call?(e, target, method)

      raise Unfit, "its arguments do not fit: #{e.message}"
    end

    def result(value)
      return { type: "result" } if value.nil?

      plain = value.respond_to?(:as_json) ? value.as_json : value
      JSON.generate(plain)
      { type: "result", value: plain }
    rescue StandardError, SystemStackError => e
      { type: "error", unfit: true, text: "what it returned has no form in JSON: #{e.message}" }
    end

    def failure(error)
      text = clean(error.message)[0, 1000]
      said = { type: "error", class: error.class.name.to_s, text: text }
      case error
      when Unfit then { type: "error", unfit: true, text: text }
      when Retry then said.merge(after: error.after)
      else said.merge(trace: clean(error.full_message(highlight: false, order: :top)), permanent: error.is_a?(PermanentFailure))
      end
    end

    def in_short(error)
      clean("#{error.class.name}: #{error.message}")[0, 1000]
    end

    def clean(text)
      text.to_s.dup.force_encoding("UTF-8").scrub
    end

    # Raised on the way into the job, and not by what it does.
    def of_the_call?(error, target, method)
      place = error.backtrace_locations&.first
      return false unless place && error.message.match?(/\A(wrong number of arguments|missing keyword|unknown keyword)/)

      called = method ? target.method(method) : target.instance_method(:perform)
      called.source_location ? called.source_location == [place.path, place.lineno] : place.base_label == called.name.to_s
    end

    def found(call)
      name, _, method = call.partition(".")
      target = name.split("::").inject(Object) { |place, part| place.const_get(part) }
      unless method.empty?
        raise Unfit, "#{name} has no method #{method}" unless target.respond_to?(method)

        return target, method
      end
      performs = target.respond_to?(:perform_now) || (target.is_a?(Class) && target.method_defined?(:perform))
      raise Unfit, "#{name} is no job: it has no method perform" unless performs

      [target, nil]
    rescue NameError => e
      raise Unfit, "there is no #{call}: #{e.message.lines.first.strip}"
    end

    # What Rails does around each piece of work: connections go back, changed code is loaded anew in development.
    def within(&block)
      return yield unless defined?(::Rails.application) && ::Rails.application

      ::Rails.application.reloader.wrap(&block)
    end
  end
end

warm = Quvatlh::Warm.new
ARGV.each { |file| require File.expand_path(file) } unless defined?(Rails)
Rails.application.eager_load! if defined?(Rails.application) && Rails.application && !Rails.application.config.eager_load
warm.serve
